"""An MLflow client that takes down what a sweep's artifacts send."""

from pathlib import Path
from typing import Any


class RecordingClient:
    """Keeps what is sent, as it was when it came."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.values: dict[str, float] = {}
        self.params: dict[str, str] = {}
        self.calls = 0

    def log(self, run_id: str, metrics: Any = (), *, params: Any = None) -> None:
        self.values |= {point.name: point.value for point in metrics}
        for point in metrics:
            self.curves.setdefault(point.name, []).append((point.step, point.value))
        self.params |= params

    def log_folder(self, run_id: str, folder: Path, artifact: str = "") -> None:
        self.calls += 1
        for path in folder.rglob("*"):
            if path.is_file():
                self.files[str(path.relative_to(folder))] = path.read_bytes()

    def set_tags(self, run_id: str, tags: Any) -> None:
        self.tags |= tags
