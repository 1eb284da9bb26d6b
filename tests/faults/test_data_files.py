"""Damaged and odd data files end a run in lines that name them, or in a true row."""

import csv
import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from PIL import Image

from tests import forked
from tests.conftest import ROOT
from tests.faults.campaign import Outcomes, random_seed, tries_within
from tests.faults.rows import problems_of_run

SHORT = "trainer.max_epochs=1", "trainer.accelerator=cpu", "compile.mode=eager", "logger=none", "hydra.run.dir=run"
OF_DATA = "data.path=data", "data.cache_dir=cache", "data.batch_size=4"
SMALL_TEXT = "model=mini_transformer", "model.dim=8", "model.depth=1", "data.vocab_size=300", "data.seq_len=16"
TIMEOUT_S = 60
NUM_ROWS = 40


@dataclass(frozen=True)
class Kind:
    """A kind of data: the overrides of a run with it, and how to write it into a folder."""

    name: str
    overrides: tuple[str, ...]
    write: Callable[[Path, random.Random], None]


def write_images(folder: Path, chance: random.Random) -> None:
    suffix = chance.choice(["png", "jpg", "bmp", "gif", "tiff", "webp"])
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(12):
            size = chance.randint(8, 40), chance.randint(8, 40)
            mode = chance.choice(["RGB", "L", "RGBA", "P", "1", "CMYK", "I;16", "LA", "F"])
            path = folder / label / f"{number}.{suffix}"
            try:
                Image.new(mode, size, chance.randint(0, 1)).save(path)
            except (OSError, ValueError):  # a mode that the format lacks
                Image.new("RGB", size).save(path)


def write_table(folder: Path, chance: random.Random) -> None:
    folder.mkdir()
    suffix = chance.choice(["csv", "tsv", "jsonl", "json", "parquet"])
    rows = [{"text": f"some words {number} of it", "label": number % 2} for number in range(NUM_ROWS)]
    path = folder / f"train.{suffix}"
    if suffix == "parquet":
        pd.DataFrame(rows).to_parquet(path)
    elif suffix == "json":
        path.write_text(json.dumps(rows))
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w") as file:
            writer = csv.DictWriter(file, ["text", "label"], delimiter="," if suffix == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)


def write_text(folder: Path, chance: random.Random) -> None:
    folder.mkdir()
    words = ["the", "cat", "sat", "on", "a", "mat", "é", "猫", "\r\n", "\t"]
    for name in ("train.txt", "more.txt"):
        text = " ".join(chance.choice(words) for _ in range(1500))
        (folder / name).write_text(text, encoding="utf-8")


KINDS = (
    Kind("images", ("data=image_folder", "data.image_size=8", "data.num_classes=2", "model=simple_cnn"), write_images),
    Kind("table", (*SMALL_TEXT, "data=table"), write_table),
    Kind("text", (*SMALL_TEXT, "data=text"), write_text),
)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip_bytes(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 3, 30])):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)


def cut_off(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def insert(path: Path, chance: random.Random) -> None:
    odd = [
        b"\0" * 100,
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b'"',
        b'"""\n',
        b"\r",
        b"\n\n\n",
        b",,,,\n",
        b"\x1b[31m",
        b"9" * 5000,
    ]
    odd += [b"[" * 100_000, b'{"text": null, "label": null}\n', b"nan\tnan\n", "é\u2028".encode(), b"\xed\xa0\x80"]
    content = path.read_bytes()
    position = chance.choice([0, len(content), chance.randrange(len(content))])
    path.write_bytes(content[:position] + chance.choice(odd) + content[position:])


def repeat_content(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() * chance.choice([2, 5]))


def become_random(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.choice([1, 100, 5000])))


def become_empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def encode_otherwise(path: Path, chance: random.Random) -> None:
    text = path.read_bytes().decode("utf-8", errors="replace")
    path.write_bytes(text.encode(chance.choice(["utf-16", "utf-32", "utf-7"])))


def become_folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def become_pipe(path: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def become_link(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.symlink_to(chance.choice([path.name, "nowhere", "/dev/zero", "/dev/null", "..", "/proc/self/mem"]))


def change_suffix(path: Path, chance: random.Random) -> None:
    path.rename(
        path.with_suffix(chance.choice([".csv", ".json", ".jsonl", ".parquet", ".txt", ".jpg", ".zip", "", ".svg"]))
    )


def change_name(path: Path, chance: random.Random) -> None:
    path.rename(path.with_name(chance.choice([".hidden", "a\nb", "\x1b[31m", "-", "x" * 200, "*", "é"]) + path.suffix))


def become_array(path: Path, chance: random.Random) -> None:
    np.save(path.open("wb"), np.zeros(3))


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


DAMAGES = (
    flip_bytes, flip_bytes, cut_off, cut_off, insert, insert, repeat_content, become_random, become_empty,
    encode_otherwise, become_folder, become_pipe, become_link, change_suffix, change_name, become_array, remove,
)  # fmt: skip


def test_damaged_data_ends_in_lines_or_in_a_true_row():
    chance = random.Random(random_seed())
    outcomes = Outcomes("data files")
    for _ in tries_within(limit_min=6, short=4, whole=100):
        kind, damage = chance.choice(KINDS), chance.choice(DAMAGES)
        num_damaged = chance.choice([1, 1, 2, 99])
        with TemporaryDirectory() as name:
            folder = Path(name, "data")
            kind.write(folder, chance)
            files = files_of(folder)
            for path in chance.sample(files, min(num_damaged, len(files))):
                damage(path, chance)
            about = f"{kind.name} {files[0].suffix}, {damage.__name__} of {num_damaged}"
            try:
                ended = forked.python(
                    ROOT / "train.py", *kind.overrides, *SHORT, *OF_DATA, cwd=Path(name), timeout_s=TIMEOUT_S
                )
            except subprocess.TimeoutExpired:
                outcomes.add("hang", [f"ran for {TIMEOUT_S} s"], about)
                continue
            outcomes.add(f"exit {ended.returncode}", problems_of_run(ended, Path(name)), about)
    outcomes.close()
