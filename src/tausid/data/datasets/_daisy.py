"""Six records of DaISy, from a local folder: nothing is downloaded, as the database states no licence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tausid.data.datasets._download import NotAvailableError
from tausid.data.datasets._folder import FOLDER_VARIABLE, find_in_folder
from tausid.data.readers import read_csv
from tausid.data.records import Dataset, Record
from tausid.errors import DataError

FOLDER = "daisy"
SOURCE = "https://homes.esat.kuleuven.be/~smc/daisy/"


@dataclass(frozen=True)
class DaisyRecord:
    """A record of DaISy: its first half trains, its second half tests.

    Args:
        plant: what its files begin with.
        summary: one sentence on it.
        ts: sampling time in seconds.
        inputs: columns of the inputs, and their units where DaISy states them.
        outputs: columns of the outputs, and their units.
    """

    plant: str
    summary: str
    ts: float
    inputs: dict[str, str]
    outputs: dict[str, str]

    @property
    def name(self) -> str:
        """What the dataset is called."""
        return f"daisy_{self.plant}"

    def find(self, folder: str | Path | None) -> tuple[Path, ...]:
        """The files of both halves."""
        files = tuple(f"{self.plant}_{role}.csv" for role in ("train", "test"))
        try:
            return find_in_folder(FOLDER, files, folder)
        except NotAvailableError as error:
            columns = ",".join((*self.inputs, *self.outputs))
            raise DataError(
                f"dataset {self.name!r} is not available: {error}.\n"
                f"Get the record from {SOURCE}, save its first half as {FOLDER}/{files[0]} and its second one as "
                f"{FOLDER}/{files[1]}, with the columns {columns}, and set {FOLDER_VARIABLE} to the folder that holds "
                f"{FOLDER}."
            ) from None

    def read(self, paths: tuple[Path, ...]) -> Dataset:
        """The records from the paths of the files."""
        train, test = (self._read_half(path, role) for path, role in zip(paths, ("train", "test"), strict=True))
        return Dataset(train=train, test=test, name=self.name)

    def _read_half(self, path: Path, role: str) -> Record:
        units = {**self.inputs, **self.outputs}
        known = units if all(units.values()) else None
        inputs, outputs = list(self.inputs), list(self.outputs)
        return read_csv(path, inputs=inputs, outputs=outputs, ts=self.ts, units=known, name=role)


DAISY = {
    record.name: record
    for record in (
        DaisyRecord(
            "heating",
            "lamp that heats a steel plate: voltage (V) to temperature (degC), Ts = 2 s, 400 samples and 401",
            2.0,
            {"voltage": "V"},
            {"temp": "degC"},
        ),
        DaisyRecord(
            "exchanger",
            "heat exchanger of liquid and steam: flow to outlet temperature, Ts = 1 s, 2000 samples each",
            1.0,
            {"flow": ""},
            {"temp": ""},
        ),
        DaisyRecord(
            "hairdryer",
            "laboratory hair dryer: voltage of the heater to thermocouple, Ts = 0.08 s, 500 samples each",
            0.08,
            {"u": ""},
            {"y": ""},
        ),
        DaisyRecord(
            "dryer2",
            "industrial dryer: fuel, fan, raw material to dry bulb, wet bulb, moisture, Ts = 10 s, 433 samples and 434",
            10.0,
            {"fuel": "", "fan": "", "raw": ""},
            {"drybulb": "", "wetbulb": "", "moisture": ""},
        ),
        DaisyRecord(
            "robotarm",
            "flexible robot arm: reaction torque to acceleration, 512 samples each; time counts samples",
            1.0,
            {"u": ""},
            {"y": ""},
        ),
        DaisyRecord(
            "ballbeam",
            "ball on a beam: angle of the beam to position of the ball, Ts = 0.1 s, 500 samples each",
            0.1,
            {"u": ""},
            {"y": ""},
        ),
    )
}
