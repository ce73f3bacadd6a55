"""Recurrent networks that predict the next character or word."""

from __future__ import annotations

from torch import Tensor, nn

from fedchord.check import one_of
from fedchord.models.parts import sizes


class StackedLSTM(nn.Module):
    """Embedding, two LSTM layers, linear head: token ids (n, length) -> (n, classes) or (n, length, classes).

    With `steps="last"` the head sees the state after the last token (the next character of a window); with "all" it
    predicts at every position, from the tokens up to it, so padding on the right changes nothing before it. The module
    takes `batch["x"]` alone; which positions count is the objective's business.

        use         vocabulary  embedding  hidden  steps  parameters
        characters          80          8  2 x 256  last     819,920 (Shakespeare, LEAF's alphabet)
        words           10,000        256  2 x 256   all   6,182,672 (Reddit; departs: E21)

    An embedding of 200 for words, as in the thesis' code, has 5,565,328. The two LSTM layers are one `nn.LSTM`, hence
    one layer for layer-wise mixing; each has PyTorch's two bias vectors. `nn.LSTM` cannot run under `vmap`: the
    vectorised executor refuses it and names it.
    """

    def __init__(
        self,
        vocabulary: int = 80,
        classes: int = 80,
        embedding: int = 8,
        hidden: int = 256,
        layers: int = 2,
        steps: str = "last",
    ) -> None:
        super().__init__()
        owner = "StackedLSTM"
        sizes(owner, vocabulary=vocabulary, classes=classes, embedding=embedding, hidden=hidden, layers=layers)
        self.steps = one_of(owner, "steps", steps, ("last", "all"))
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        logits: Tensor = self.head(states[:, -1] if self.steps == "last" else states)
        return logits
