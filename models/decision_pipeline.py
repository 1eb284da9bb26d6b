"""A controller of a machine: perception, a memory of past states, a decision by rules, control, and safety."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STAGES = ("perception", "decision", "control", "safety")


class DecisionPipeline(nn.Module):
    """Rates num_classes actions, [B, num_classes] in [-limit, limit], for observations [B, channels, T, W], T from 1.

    The T rows of an observation are the measurements of a sensor so far, newest last: at the start there are few.
    Perception makes a state of each row; the last `window` states, filled up at the start with zeros, go through an
    LSTM, and the newest attends to the measured ones. The decision brakes if the urgency is high anywhere in the
    batch. rewritten=False: by rules in Python on a number (`.item()`), which break the graph. True: by torch.where;
    same numbers. The LSTM is a cell called step by step, for Dynamo does not trace nn.LSTM. The shapes behind
    perception do not depend on T. `until` names the stage that the call ends with, for the times of the first ones:
    perception returns the states [B, T, width], decision the one [B, 2 width] that control makes actions of, control
    the actions [B, num_classes] without limits, and safety, the default, limits them (NaN stays NaN). Raises ValueError
    for a window below 1 and an unknown stage.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        width: int = 128,
        depth: int = 2,
        window: int = 16,
        limit: float = 10.0,
        rewritten: bool = True,
        until: str = "safety",
    ):
        super().__init__()
        if until not in STAGES:
            raise ValueError(f"until={until} is no stage; one of {', '.join(STAGES)}")
        if window < 1:
            raise ValueError(f"window={window} remembers nothing; at least 1")
        self.window, self.limit, self.rewritten, self.until = window, limit, rewritten, until
        convs = [nn.Conv2d(channels if n == 0 else width, width, (1, 5), padding=(0, 2)) for n in range(depth)]
        self.perception = nn.ModuleList(convs)
        self.lstm = nn.LSTMCell(width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.urgency = nn.Linear(2 * width, 1)
        self.control = nn.Sequential(
            nn.LayerNorm(2 * width), nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, num_classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        x = images
        for conv in self.perception:
            x = conv(x).relu()  # [B, width, T, W]
        states = x.mean(-1).transpose(1, 2)  # [B, T, width]
        if self.until == "perception":
            return states
        state = self.decide(self.remember(states))  # [B, 2 width]
        if self.until == "decision":
            return state
        actions = self.control(state)  # [B, num_classes]
        if self.until == "control":
            return actions
        return self.limit * torch.tanh(actions / self.limit)  # safety: within the limits, whatever was decided

    def remember(self, states: Tensor) -> Tensor:
        """The newest state of the LSTM, and its attention to the past: [B, T, width] -> [B, 2 width]."""
        states = states[:, -self.window :]
        missing = self.window - states.shape[1]
        states = F.pad(states, (0, 0, missing, 0))  # [B, window, width]
        outputs, memory = [], (torch.zeros_like(states[:, 0]), torch.zeros_like(states[:, 0]))
        for t in range(self.window):
            memory = self.lstm(states[:, t], memory)
            outputs.append(memory[0])
        states = torch.stack(outputs, 1)  # [B, window, width]
        newest = states[:, -1:]
        mask = torch.arange(self.window, device=states.device) >= missing  # [window]
        past = F.scaled_dot_product_attention(self.query(newest), self.key(states), states, attn_mask=mask[None])
        return torch.cat([newest, past], -1).squeeze(1)

    def decide(self, state: Tensor) -> Tensor:
        """The state, damped if the machine should brake: [B, 2 width] -> same."""
        urgency = self.urgency(state).sigmoid()  # [B, 1]
        if self.rewritten:
            return torch.where(urgency.amax() > 0.5, state * (1 - urgency), state * (1 + urgency))
        if urgency.amax().item() > 0.5:
            return state * (1 - urgency)
        return state * (1 + urgency)
