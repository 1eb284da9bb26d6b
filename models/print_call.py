"""Control flow: a print in the middle of forward, and none."""

from torch import Tensor, nn


class PrintCall(nn.Module):
    """Classifies images [B, channels, image_size, image_size] into logits [B, num_classes].

    rewritten=False: forward prints the mean of its hidden values, which breaks the graph and waits for the device.
    True: it does not; a print under `if not torch.compiler.is_compiling()` would do no harm. One in a forward hook
    would, for Dynamo compiles hooks too. Same numbers.
    """

    def __init__(self, channels: int, image_size: int, num_classes: int, width: int = 512, rewritten: bool = True):
        super().__init__()
        self.rewritten = rewritten
        self.fc1 = nn.Linear(channels * image_size**2, width)
        self.fc2 = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.fc1(images.flatten(1)).relu()  # [B, width]
        if not self.rewritten:
            print("hidden values:", x.mean().item())
        return self.fc2(x)  # [B, num_classes]
