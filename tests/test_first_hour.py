"""A user's first hour: own images, network and training loop, then the shipped file, used as the terminal output says.

The images are drawings of machine parts at 64x64. ``judge`` relies only on the last lines of the terminal output.
"""

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image, ImageDraw
from torch import nn

from catro_deploy.files import write_text
from tests.forked import Forked
from tests.tiny import exit_code_of

KINDS = ("bolt", "disc", "washer", "wedge")
SIZE = 64

NETWORK = """
from torch import nn


class Parts(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            *self.block(3, 24, 2), *self.block(24, 48, 2), *self.block(48, 48, 1), *self.block(48, 64, 2)
        )
        self.head = nn.Linear(64, classes)

    def block(self, inputs, outputs, stride):
        return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()

    def forward(self, x):
        return self.head(self.features(x).amax((2, 3)))
"""


def draw(kind: str, rng: np.random.Generator) -> Image.Image:
    """A part at a random position, size, shade and angle, on a dark, noisy background."""
    image = Image.new("RGB", (SIZE, SIZE), tuple(rng.integers(20, 90, 3).tolist()))
    canvas, shade = ImageDraw.Draw(image), tuple(rng.integers(160, 240, 3).tolist())
    x, y, r = (int(value) for value in (*rng.integers(24, 40, 2), rng.integers(14, 20)))
    angle = rng.uniform(0, np.pi)
    if kind == "bolt":
        dx, dy = r * np.cos(angle), r * np.sin(angle)
        canvas.line([x - dx, y - dy, x + dx, y + dy], fill=shade, width=7)
    elif kind == "wedge":
        canvas.regular_polygon((x, y, r), 3, rotation=int(np.degrees(angle)), fill=shade)
    else:
        canvas.ellipse([x - r, y - r, x + r, y + r], fill=shade)
    if kind == "washer":
        canvas.ellipse([x - r // 2, y - r // 2, x + r // 2, y + r // 2], fill=(0, 0, 0))
    noisy = np.asarray(image, np.float32) + rng.normal(0, 8, (SIZE, SIZE, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def save_pictures(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 80), ("val", 40), ("test", 50)):
        for kind in KINDS:
            (folder / split / kind).mkdir(parents=True)
            for number in range(count):
                draw(kind, rng).save(folder / split / kind / f"{number}.png")


def train(model: nn.Module, folder: Path) -> None:
    """A plain training loop, as any user would write it."""
    files = [(path, label) for label, kind in enumerate(KINDS) for path in sorted((folder / kind).iterdir())]
    pixels = np.stack([np.asarray(Image.open(path), np.float32) / 255 for path, _ in files])
    images = (torch.from_numpy(pixels).permute(0, 3, 1, 2) - 0.5) / 0.25
    labels = torch.tensor([label for _, label in files])
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(12):
        for batch in torch.randperm(len(images)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()


def judge(said: str, folder: Path) -> float:
    """Accuracy of the shipped file on the images in ``folder``, prepared as the terminal output ``said`` describes."""
    file = re.search(r"^ship: (\S+)", said, re.MULTILINE)[1]
    name, height, width = re.search(r"^input: (\w+), float32 1x3x(\d+)x(\d+) NCHW, RGB", said, re.MULTILINE).groups()
    assert "normalised beforehand: (pixel / 255 - mean) / std" in said
    mean, std = (np.array(eval(re.search(rf"{key} (\[[^]]*\])", said)[1]), np.float32) for key in ("mean", "std"))
    outputs = re.search(r"^outputs: (.*)$", said, re.MULTILINE)[1].split(", ")
    classes = [output.partition(" ")[2] for output in outputs]
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    right = []
    for kind in classes:
        for path in (folder / kind).iterdir():
            picture = Image.open(path).convert("RGB").resize((int(width), int(height)))
            pixels = (np.asarray(picture, np.float32) / 255 - mean) / std
            (logits,) = session.run(None, {name: pixels.transpose(2, 0, 1)[None].astype(np.float32)})
            right.append(classes[int(logits[0].argmax())] == kind)
    return float(np.mean(right))


def run(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in a separate process; return its exit code, standard output and standard error."""
    process = Forked(*arguments, cwd=Path.cwd(), output=Path.cwd() / "terminal")
    return process.end(), process.stdout(), process.stderr()


@pytest.mark.slow
def test_the_first_hour_ends_with_a_network_that_is_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_pictures(tmp_path / "pictures")
    write_text(tmp_path / "parts.py", NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    from parts import Parts  # type: ignore[import-not-found]

    torch.manual_seed(0)
    model = Parts(len(KINDS))
    train(model, tmp_path / "pictures" / "train")
    torch.save(model.state_dict(), "parts.pth")

    assert run("init")[0] == 0
    own = {
        '"cifar_resnet20" ': '"parts:Parts" ',
        '"model.pth"': '"parts.pth"',
        "[0.485, 0.456, 0.406]": "[0.5, 0.5, 0.5]",
        "[0.229, 0.224, 0.225]": "[0.25, 0.25, 0.25]",
        'root = "data"': 'root = "pictures"',
        "epochs = 40": "epochs = 3",
    }
    text = (tmp_path / "catro.toml").read_text()
    for old, new in own.items():
        assert old in text
        text = text.replace(old, new)
    write_text(tmp_path / "catro.toml", text + '\n[profile]\nprotocol = "quick"\n\n[bench]\nprotocol = "quick"\n')
    code, said, log = run("run", "--classes", "washer,bolt,wedge", "--budget", "0.5x")
    assert code in (0, 3), log
    (path,) = Path("runs").iterdir()
    assert code == exit_code_of(path), log
    assert "\nimages 64x64\n" in log  # inferred from the images: no setting specifies a size
    assert "outputs: 0 washer, 1 bolt, 2 wedge\n" in said
    shares = re.search(r"^accuracy +([\d.]+)% +([\d.]+)% ", said, re.MULTILINE).groups()
    original, pruned = (float(share) / 100 for share in shares)
    assert original >= 0.97
    assert pruned >= original - 0.02
    assert judge(said, tmp_path / "pictures" / "test") == pytest.approx(pruned, abs=1e-4)
