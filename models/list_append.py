"""Control flow: a list that a loop over the positions appends to, and in its place one matrix product, a scan or an
associative scan."""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan  # torch 2.11 to 2.13 have no public name
from torch._higher_order_ops.scan import scan

REMEDIES = ("matrix", "scan", "associative_scan")
Terms = tuple[Tensor, Tensor]


class ListAppend(nn.Module):
    """Classifies tokens [B, T] of any T into logits [B, num_classes].

    The state decays and takes in one token after another, s_t = decay s_{t-1} + x_t; the mean of all
    states is classified. rewritten=False: a loop in Python appends each state to a list, which torch.compile unrolls:
    the graph grows with T, and is compiled anew for each T. True: same numbers. Remedy "matrix": all states at once, by
    the closed form of that scan, s = D x with D[t, u] = decay^(t - u) for u <= t; "scan": torch's scan, one step in
    the graph whatever T; "associative_scan": about log2 T rounds, each of all positions at once. Raises ValueError for
    another remedy.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        dim: int = 128,
        decay: float = 0.9,
        rewritten: bool = True,
        remedy: str = "matrix",
    ):
        super().__init__()
        if remedy not in REMEDIES:
            raise ValueError(f"remedy={remedy} is unknown; one of {', '.join(REMEDIES)}")
        self.decay, self.rewritten, self.remedy = decay, rewritten, remedy
        self.token = nn.Embedding(vocab_size, dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)  # [B, T, dim]
        if not self.rewritten:
            states = self.loop(x)  # [B, T, dim]
        elif self.remedy == "matrix":
            states = self.product(x)
        elif self.remedy == "scan":
            states = self.scan(x)
        else:
            states = self.associative_scan(x)
        return self.head(states.mean(1))  # [B, num_classes]

    def loop(self, x: Tensor) -> Tensor:
        states, state = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = self.decay * state + x[:, t]
            states.append(state)
        return torch.stack(states, 1)

    def product(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        age = (at[:, None] - at).clamp(min=0)  # [T, T]
        weights = (self.decay ** age.to(x.dtype)).tril()
        return weights @ x

    def scan(self, x: Tensor) -> Tensor:
        def step(state: Tensor, token: Tensor) -> Terms:
            state = self.decay * state + token
            return state, state.clone()  # what is carried on and what is kept may not be one tensor

        start = 0 * x[:, 0]  # from one that needs no gradient torch 2.11 computes wrong gradients
        return scan(step, start, x.transpose(0, 1))[1].transpose(0, 1)

    def associative_scan(self, x: Tensor) -> Tensor:
        """A stretch of tokens scales the state before it by its first term and adds its second."""

        def joined(left: Terms, right: Terms) -> Terms:
            return left[0] * right[0], left[1] * right[0] + right[1]

        # combine_mode="pointwise", the default, is for GPUs alone.
        return associative_scan(joined, (torch.full_like(x, self.decay), x), dim=1, combine_mode="generic")[1]
