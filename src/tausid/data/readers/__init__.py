"""Files and data frames -> Record: text, Excel, MATLAB, Parquet, HDF5 and numpy files, pandas and polars frames."""

from tausid.data.readers._channels import Channel, Channels, read_channels
from tausid.data.readers._read import ENDINGS, read, read_csv
from tausid.data.readers._tables import Key, Keys, in_words

__all__ = [
    "ENDINGS",
    "Channel",
    "Channels",
    "Key",
    "Keys",
    "in_words",
    "read",
    "read_channels",
    "read_csv",
]
