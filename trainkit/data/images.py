"""Images in class folders, or a data set of images of the Hugging Face hub."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import torch
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from numpy.lib.format import open_memmap
from PIL import Image
from rich.console import Console
from rich.progress import track
from torch.utils.data import Subset

from trainkit.config.errors import ConfigError
from trainkit.data.augment import Augment
from trainkit.data.cache import array, cached, made
from trainkit.data.module import ArrayDataset, DataModule, is_part
from trainkit.data.splits import TRAIN, VALIDATION, first, load, train_and_val

DECODING = 3  # raise it when the code below makes other pixels of the same file: older caches are then left alone
MODES = {1: "L", 3: "RGB"}  # by channels
REMEDY = "give a folder of class folders, or a data set of the hub"


class Split(NamedTuple):
    """Images as {path, bytes}, not decoded, and the number of each one's class: its place in the training's names."""

    images: datasets.Dataset  # column `image`
    targets: list[int]


class Images(DataModule):
    """Images uint8 [B, channels, side, side] with classes [B]; `prepare` makes the network's float32 batch of them.

    `path` is a folder with a folder for each class (their names, sorted, are the classes), or with such folders in
    `train/` and `val/` (or `test/`, `validation/`); or the name of a data set of the hub. `val_path` is another folder
    to validate on, whose classes are found by name; without either the seed picks `val_fraction` of the images. Every
    image is decoded once, its shorter side scaled to `side` (null: image_size) and its middle cut out, into a
    memory-mapped file in `cache_dir`, under a hash of the files' paths, sizes and times and of the settings; any number
    of processes may do so at once.
    ConfigError naming the file for one that is missing, cut off or no image, or lies beside the classes, and for
    classes that have no image or are not the declared.
    """

    def __init__(
        self,
        *,
        path: str | None,
        val_path: str | None = None,
        val_fraction: float = 0.1,
        label: str | None = None,
        side: int | None = None,
        crop_padding: int = 0,
        flip: bool = True,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
        batch_size: int,
        num_workers: int = 0,
        seed: int = 0,
        cache_dir: str = "~/.cache/trainkit",
        inputs: str = "images",
        channels: int = 3,
        image_size: int = 32,
        num_classes: int = 10,
    ):
        super().__init__(
            batch_size=batch_size,
            num_workers=num_workers,
            seed=seed,
            inputs=inputs,
            channels=channels,
            image_size=image_size,
            num_classes=num_classes,
        )
        self.path, self.val_path = str(path or ""), str(val_path) if val_path else None
        self.val_fraction, self.label = val_fraction, label
        self.side = image_size if side is None else side
        self.cache_dir = Path(cache_dir).expanduser()
        if complaints := self._complaints(crop_padding, mean, std):
            raise ConfigError(*complaints)
        self.prepare = Augment(image_size, crop_padding, flip, mean, std)

    def prepare_data(self) -> None:
        """Fills the cache if these images were not decoded before."""
        assert self._cache

    def setup(self, stage: str) -> None:
        train = self._decoded("train")
        if (self._cache / "val-images.npy").exists():
            self.train_set, self.val_set = train, self._decoded("val")
            return
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(self.seed)).tolist()
        num_val = round(len(order) * self.val_fraction)
        self.train_set, self.val_set = Subset(train, order[num_val:]), Subset(train, order[:num_val])

    @cached_property
    def _cache(self) -> Path:
        """The folder of these images' pixels, made at the first look."""
        splits = self._splits()
        made_from = DECODING, self.side, self.sizes["channels"], [_stamp(*split) for split in splits.values()]
        return cached(self.cache_dir, made_from, partial(self._decode_into, splits))

    def _decoded(self, split: str) -> ArrayDataset:
        files = [self._cache / f"{split}-{what}.npy" for what in ("images", "targets")]
        return ArrayDataset(*map(array, files))

    def _decode_into(self, splits: dict[str, Split], folder: Path) -> None:
        for name, (images, targets) in splits.items():
            shape = (len(images), self.sizes["channels"], self.side, self.side)
            pixels = open_memmap(folder / f"{name}-images.npy", mode="w+", dtype=np.uint8, shape=shape)
            decode = partial(_decode, mode=MODES[shape[1]], side=self.side, subject=" = ".join(self._named(name)))
            with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow decodes without the interpreter's lock
                done = threads.map(decode, images["image"])
                title = f"decoding {self.path} ({name})"
                for place, image in enumerate(
                    track(done, title, len(images), console=Console(stderr=True), transient=True)
                ):
                    pixels[place] = image
            pixels.flush()
            np.save(folder / f"{name}-targets.npy", np.array(targets, dtype=np.int64))

    def _splits(self) -> dict[str, Split]:
        """`train`, and `val` where there is one."""
        loaded = cache(self._load)

        def find(setting: str, path: str, words: tuple[str, ...]) -> datasets.Dataset | None:
            return first(loaded(setting, path), words)

        train, val = train_and_val(self.path, self.val_path, find, REMEDY)
        train_split, names = self._columns("data.path", self.path, train)
        splits = {"train": train_split}
        if val is not None:
            setting, path = self._named("val")
            images, val_names = self._columns(setting, path, val)
            trained = {names[number]: number for number in sorted(set(train_split.targets))}
            if unseen := sorted({val_names[number] for number in images.targets} - set(trained)):
                raise ConfigError(
                    f"{setting} = {path}: nothing to train on of the validation's classes {', '.join(unseen)}; "
                    "give images of them, or leave them out"
                )
            splits["val"] = images._replace(targets=[trained[val_names[number]] for number in images.targets])
        has, declared = len(names), self.sizes["num_classes"]
        if has != declared:
            raise ConfigError(f"data.num_classes = {declared}: {self.path} has {has}; say data.num_classes={has}")
        return splits

    def _named(self, split: str) -> tuple[str, str]:
        """The setting that says where a split lies, and its value."""
        return ("data.val_path", self.val_path) if split == "val" and self.val_path else ("data.path", self.path)

    def _load(self, setting: str, path: str) -> dict[str, datasets.Dataset]:
        folder, cache_dir = Path(path).expanduser(), str(made(self.cache_dir / "datasets"))
        if folder.is_file():
            raise ConfigError(f"{setting} = {path}: a single file; {REMEDY}")
        if not folder.is_dir():
            return load(setting, path, REMEDY, path, cache_dir=cache_dir)
        if complaints := list(_left_out(setting, path, folder)):
            raise ConfigError(*complaints)
        # With one class alone the library would take a folder to validate on for one without classes.
        settings = {"drop_labels": False} if setting == "data.val_path" else {}
        return load(setting, path, REMEDY, "imagefolder", data_dir=str(folder), cache_dir=cache_dir, **settings)

    def _columns(self, setting: str, path: str, split: datasets.Dataset) -> tuple[Split, list[str]]:
        """The images with the numbers of their classes, and the classes' names in this split's own order."""
        features = split.features
        images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
        labels = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
        label = self.label or (labels[0] if len(labels) == 1 else None)
        if not images or label not in labels:
            has = (
                f"has the class columns {', '.join(labels) or 'none'}; name one of them, or give a folder with a "
                "folder for each class"
            )
            if setting == "data.val_path" and not self.label:
                raise ConfigError(f"{setting} = {path}: {has}")
            raise ConfigError(f"data.label = {self.label}: {path} {has}")
        targets = split[label][:]
        if withheld := sum(target is None or target < 0 for target in targets):
            raise ConfigError(
                f"{setting} = {path}: {withheld} images of its {split.split} split have no class; {REMEDY}"
            )
        kept = split.select_columns([images[0]])
        kept = kept if images[0] == "image" else kept.rename_column(images[0], "image")
        return Split(kept.cast_column("image", datasets.Image(decode=False)), targets), features[label].names

    def _complaints(self, crop_padding: int, mean: Sequence[float], std: Sequence[float]) -> list[str]:
        channels, image_size = self.sizes["channels"], self.sizes["image_size"]
        complaints = self.contradictions(inputs="images")
        if not self.path:
            complaints.append(f"data.path = null: no images; {REMEDY}")
        if channels not in MODES:
            complaints.append(f"data.channels = {channels}: expected 1 (grey) or 3 (RGB)")
        elif {len(mean), len(std)} != {channels}:
            complaints.append(f"data.mean = {list(mean)}, data.std = {list(std)}: expected {channels} values each")
        if not all(isinstance(value, int | float) for value in mean):
            complaints.append(f"data.mean = {list(mean)}: expected numbers")
        if not all(isinstance(value, int | float) and value > 0 for value in std):
            complaints.append(f"data.std = {list(std)}: expected numbers above 0")
        if crop_padding < 0:
            complaints.append(f"data.crop_padding = {crop_padding}: expected a number of pixels of at least 0")
        elif not 0 < image_size <= self.side + 2 * crop_padding or self.side < 1:
            complaints.append(
                f"data.image_size = {image_size}: cut out of data.side = {self.side} and {crop_padding} pixels around "
                "it; give a larger data.side"
            )
        if self.val_path is None and not is_part(self.val_fraction):
            complaints.append(f"data.val_fraction = {self.val_fraction}: expected a part of the images; try 0.1")
        return complaints


def _left_out(setting: str, path: str, folder: Path) -> Iterator[str]:
    """A complaint for each thing that the library would leave out without a word: a link to nothing, a class without
    an image, an image beside the folders of the classes."""
    splits = {folder, *(folder / word for word in (*TRAIN, *VALIDATION))}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in sorted(files):
            file = Path(place, name)
            if not file.exists():
                yield f"{setting} = {path}: {file} is a link to nothing; mend it or leave it out"
            elif folders and file.parent in splits and file.suffix.lower() in ImageFolder.EXTENSIONS:
                yield f"{setting} = {path}: {file} lies beside the folders of the classes; move it into one"
        if not folders and not files:
            yield f"{setting} = {path}: {place} has no images; give it some, or remove it"


def _stamp(images: datasets.Dataset, targets: list[int]) -> str:
    """What these images were made from: paths, sizes and times of files; of what came from the hub its fingerprint."""
    stamps = []
    for image in images["image"]:
        file = Path(image["path"] or "")
        if image["bytes"] is not None or not file.is_file():
            return f"{images._fingerprint} {targets}"
        found = file.stat()
        stamps.append((str(file.absolute()), found.st_size, found.st_mtime_ns))
    return hashlib.sha256(repr((stamps, targets)).encode()).hexdigest()


def _eight_bits(opened: Image.Image) -> Image.Image:
    """Grey of 16 bits scaled to 8, where Pillow's own conversion makes all of it from 255 on white.

    ValueError for 32 bits, which may be of any range.
    """
    # "I" is of 32 bits, but for these formats, which have no more than 16.
    if opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(opened).astype(np.int64) + 128) // 257).astype(np.uint8))
    if opened.mode in ("I", "F"):
        raise ValueError("pixels of 32 bits")
    return opened


def _decode(image: dict[str, Any], mode: str, side: int, subject: str) -> np.ndarray:
    """The middle of an image whose shorter side is scaled to `side`: uint8 [C, side, side]."""
    source = image["path"] if image["bytes"] is None else BytesIO(image["bytes"])
    try:
        with Image.open(source) as opened:
            opened.draft(mode, (side, side))  # a JPEG decodes to the next larger size that is cheap
            picture = _eight_bits(opened).convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(f"{subject}: {image['path']} cannot be read ({error}); mend it or leave it out") from error
    scale = side / min(picture.size)
    width, height = (max(round(scale * length), side) for length in picture.size)
    left, top = (width - side) // 2, (height - side) // 2
    picture = picture.resize((width, height), Image.Resampling.BILINEAR) if scale != 1 else picture
    pixels = np.asarray(picture.crop((left, top, left + side, top + side)))  # [side, side] or [side, side, C]
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
