"""A kind of data that the package does not have: time series, as a user would add one."""

import dataclasses

import numpy as np

from input_fns import DataError, kinds
from input_fns.anomalies.sample import Anomaly
from input_fns.core.dataset_parts import Feature
from input_fns.core.json_fields import array, field, file_name, integer_in, line
from input_fns.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Series(Kind):
    """Windows of sensors, float32 `[steps, sensors]`, with the value that follows, "target"."""

    hertz: int = field(integer_in(1, 1000))
    sensors: tuple[str, ...] = field(array(line))
    calibration: str = field(file_name)

    name = "sensor_windows"
    content = "has time series"
    noun = "windows"
    side_names = ("calibration.txt",)

    def check(self, data):
        """Raises DataError if windows have another number of sensors."""
        if data.features["window"].shape[1:] != (len(self.sensors),):
            raise DataError("features.window has another width than sensor_windows.sensors")

    def properties(self):
        """Returns the sampling rate."""
        return {"hertz": self.hertz}

    def describe(self, data):
        """Returns the sampling rate."""
        return f"{len(self.sensors)} sensors at {self.hertz} Hz"

    def side_files(self, data, split_names):
        """Returns the file of the calibration."""
        return [self.calibration]

    def file_problems(self, data, name, num_bytes, num_lines):
        """Yields another number of lines than sensors."""
        if num_lines != len(self.sensors):
            yield f"has {num_lines} lines for {len(self.sensors)} sensors"

    def anomalies(self, sample):
        """Yields sensors that never change."""
        windows = sample.values("window")
        for i, sensor in enumerate(self.sensors):
            if np.ptp(windows[..., i]) == 0:
                yield Anomaly(f"the sensor {sensor} of {sample.where} never changes")

    @classmethod
    def synthetic(cls, shapes):
        """Returns windows of two sensors."""
        window, target = Feature("raw", "float32", (3, 2)), Feature("raw", "float32", ())
        kind = cls(50, ("a", "b"), "")
        features = {"window": window, "target": target}
        return kinds.synthetic_dataset(features, labels=("target",), kind=kind)
