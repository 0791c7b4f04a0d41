"""Files and data frames -> Record: text, MATLAB, Parquet and HDF5 files, pandas and polars frames."""

from tausid.data.readers._channels import Channel, Channels, read_channels
from tausid.data.readers._read import ENDINGS, read, read_csv
from tausid.data.readers._tables import Key, Keys

__all__ = [
    "ENDINGS",
    "Channel",
    "Channels",
    "Key",
    "Keys",
    "read",
    "read_channels",
    "read_csv",
]
