"""What this job's GPUs are and do, as nvidia-smi tells."""

from __future__ import annotations

import re
import subprocess
import threading
from typing import Any

from .task import Json

GPU_FIELDS = {
    "utilization.gpu": "utilization_percent",
    "memory.used": "memory_used_mib",
    "power.draw": "power_w",
    "clocks.sm": "clock_mhz",
}


class Gpus:
    """Samples this job's GPUs by nvidia-smi, if there is one, until closed."""

    def __init__(self, every: float, env: Any) -> None:
        self.devices: list[Json] = []
        self._sums: dict[str, dict[str, list[float]]] = {}
        self._mine = [word for word in re.split(r"[,\s]+", env.get("CUDA_VISIBLE_DEVICES", "")) if word]
        self._every = every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample_for_ever, daemon=True)
        if every > 0 and self._identify():
            self._thread.start()

    def _ask(self, fields: str) -> list[list[str]]:
        command = ["nvidia-smi", "--query-gpu=index,uuid," + fields, "--format=csv,noheader,nounits"]
        try:
            asked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False)
        except (OSError, subprocess.SubprocessError):
            return []
        lines = asked.stdout.decode(errors="replace").splitlines() if asked.returncode == 0 else []
        rows = [[word.strip() for word in line.split(",")] for line in lines]
        return [row for row in rows if len(row) > 2 and self._is_mine(row[0], row[1])]

    def _is_mine(self, index: str, uuid: str) -> bool:
        # HTCondor names GPUs by the beginning of their UUID, Slurm by number.
        return not self._mine or any(word == index or (len(word) > 4 and uuid.startswith(word)) for word in self._mine)

    def _identify(self) -> bool:
        for _, uuid, model, driver, memory in (
            row for row in self._ask("name,driver_version,memory.total") if len(row) == 5
        ):
            self.devices.append({"uuid": uuid, "model": model, "driver": driver, "memory_mib": number_or_none(memory)})
        return bool(self.devices)

    def _sample_for_ever(self) -> None:
        while not self._end.is_set():
            for row in self._ask(",".join(GPU_FIELDS)):
                for name, word in zip(GPU_FIELDS.values(), row[2:]):
                    value = number_or_none(word)
                    if value is not None:
                        self._sums.setdefault(row[1], {}).setdefault(name, []).append(value)
            self._end.wait(self._every)

    def summary(self) -> Json:
        """Mean and highest of each reading so far, by GPU UUID."""
        return {
            uuid: {
                name: {"mean": round(sum(v) / len(v), 1), "max": max(v), "samples": len(v)}
                for name, v in list(rows.items())
            }
            for uuid, rows in list(self._sums.items())
        }

    def close(self) -> None:
        """No more samples."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(35)


def number_or_none(word: str) -> float | None:
    """A number, or None for `[N/A]` and the like."""
    try:
        return float(word)
    except ValueError:
        return None
