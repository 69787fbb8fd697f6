"""A Progress that keeps its notes."""

from catro_deploy.progress import Silent

__all__ = ["Notes"]


class Notes(Silent):
    """Keeps all notes, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)
