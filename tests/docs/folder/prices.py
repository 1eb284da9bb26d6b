"""What a guide calls `prices`: a csv as a Dataset, and a network for it."""

import csv

import torch
from torch import nn
from torch.utils.data import Dataset


class Prices(Dataset):
    def __init__(self, path: str):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.inputs = torch.tensor([[float(row["area"]), float(row["rooms"])] for row in rows])  # [N, 2]
        self.targets = torch.tensor([[float(row["price"])] for row in rows])  # [N, 1]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(inputs)  # [B, 2] -> [B, 1]
