"""Images in class folders, or a data set of images of the Hugging Face hub."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap
from rich.console import Console
from rich.progress import track
from torch.utils.data import Subset

from trainkit.config.errors import ConfigError, refuse
from trainkit.data.augment import Augment
from trainkit.data.batches import ArrayDataset
from trainkit.data.cache import cached_folder, load_array
from trainkit.data.decode import DECODING, MODES, decode_image
from trainkit.data.image_source import IMAGES_WAY_OUT, ImageSplit, find_image_splits
from trainkit.data.location import locations
from trainkit.data.module import DataModule, contradictions, val_fraction_complaints


class Images(DataModule):
    """Images uint8 [B, channels, side, side] with classes [B]; `prepare` makes the network's float32 batch of them.

    `path` is a folder with a folder for each class (their names, sorted, are the classes), or with such folders in
    `train/` and `val/` (or `test/`, `validation/`); or the name of a data set of the hub. `val_path` is another folder
    to validate on, whose classes are matched by name; without either the seed picks `val_fraction` of the images.
    Every image is decoded once, its shorter side scaled to `side` (null: image_size) and its middle cut out, into a
    memory-mapped file in `cache_dir`, under a hash of the files' paths, sizes and times and of the settings; several
    processes may do so at once. Raises ConfigError naming a file that is missing, cut off, no image or beside the
    class folders, and for classes that have no image or are not the declared ones.
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
        self.train_location, self.val_location = locations(path, val_path, IMAGES_WAY_OUT)
        self.val_fraction = val_fraction
        self.label = label
        self.side = image_size if side is None else side
        self.cache_dir = Path(cache_dir).expanduser()
        refuse(_image_complaints(self, crop_padding, mean, std))
        self.prepare = Augment(image_size, crop_padding, flip, mean, std)

    def prepare_data(self) -> None:
        """Fill the cache if these images have not been decoded before."""
        assert self.cache_folder

    def setup(self, stage: str) -> None:
        train = self._decoded("train")
        if (self.cache_folder / "val-images.npy").exists():
            self.train_set, self.val_set = train, self._decoded("val")
            return
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(self.seed)).tolist()
        num_val = round(len(order) * self.val_fraction)
        self.train_set, self.val_set = Subset(train, order[num_val:]), Subset(train, order[:num_val])

    @cached_property
    def cache_folder(self) -> Path:
        """The folder of these images' pixels, made on first use."""
        splits = find_image_splits(self.train_location, self.val_location, self.label, self.cache_dir)
        num_classes, num_declared = len(splits["train"].class_names), self.sizes["num_classes"]
        if num_classes != num_declared:
            path = self.train_location.path
            raise ConfigError(
                f"data.num_classes = {num_declared}: {path} has {num_classes}; say data.num_classes={num_classes}"
            )
        fingerprints = [split.fingerprint for split in splits.values()]
        made_from = DECODING, self.side, self.sizes["channels"], fingerprints
        return cached_folder(self.cache_dir, made_from, partial(self._decode_into, splits))

    def _decoded(self, split: str) -> ArrayDataset:
        images = load_array(self.cache_folder / f"{split}-images.npy")
        return ArrayDataset(images, load_array(self.cache_folder / f"{split}-targets.npy"))

    def _decode_into(self, splits: dict[str, ImageSplit], folder: Path) -> None:
        for name, split in splits.items():
            title = f"decoding {self.train_location.path} ({name})"
            decode = partial(decode_image, channels=self.sizes["channels"], side=self.side, location=split.location)
            shape = (len(split.images), self.sizes["channels"], self.side, self.side)
            pixels = open_memmap(folder / f"{name}-images.npy", mode="w+", dtype=np.uint8, shape=shape)
            with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow decodes without the interpreter's lock
                decoded = threads.map(decode, split.images["image"])
                progress = track(decoded, title, len(pixels), console=Console(stderr=True), transient=True)
                for place, image in enumerate(progress):
                    pixels[place] = image
            pixels.flush()
            np.save(folder / f"{name}-targets.npy", np.array(split.targets, dtype=np.int64))


def _image_complaints(data: Images, crop_padding: int, mean: Sequence[float], std: Sequence[float]) -> list[str]:
    complaints = contradictions(data, inputs="images")
    if not data.train_location.path:
        complaints.append(data.train_location.complaint("no images"))
    complaints += _channel_complaints(data.sizes["channels"], mean, std)
    complaints += _crop_complaints(data.sizes["image_size"], data.side, crop_padding)
    if data.val_location is None:
        complaints += val_fraction_complaints(data.val_fraction)
    return complaints


def _channel_complaints(channels: int, mean: Sequence[float], std: Sequence[float]) -> list[str]:
    complaints = []
    if channels not in MODES:
        complaints.append(f"data.channels = {channels}: expected 1 (grey) or 3 (RGB)")
    elif not len(mean) == len(std) == channels:
        complaints.append(f"data.mean = {list(mean)}, data.std = {list(std)}: expected {channels} values each")
    if not all(isinstance(value, int | float) for value in mean):
        complaints.append(f"data.mean = {list(mean)}: expected numbers")
    if not all(isinstance(value, int | float) and value > 0 for value in std):
        complaints.append(f"data.std = {list(std)}: expected numbers above 0")
    return complaints


def _crop_complaints(image_size: int, side: int, crop_padding: int) -> list[str]:
    if crop_padding < 0:
        return [f"data.crop_padding = {crop_padding}: expected a number of pixels of at least 0"]
    if side >= 1 and 0 < image_size <= side + 2 * crop_padding:
        return []
    return [
        f"data.image_size = {image_size}: cut out of data.side = {side} and {crop_padding} pixels around "
        "it; give a larger data.side"
    ]
