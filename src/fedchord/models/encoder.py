"""A pretrained text encoder from a local folder, with the thesis' head. Needs the extra `text` (transformers)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedchord.check import below, fail, one_of, require
from fedchord.models.parts import sizes, stay

ROWS = 32
"""How many rows are evaluated at a time."""


class TextEncoder(nn.Module):
    """DistilBERT, or any encoder that `transformers` reads from a folder: token ids (n, length) -> (n, classes).

    `encoder` gives a vector of h numbers per token (768 for DistilBERT, 384 for MiniLM). One vector per text: that of
    the first token (`pool="first"`, [CLS], as in the thesis) or the mean over tokens that are not padding ("mean", what
    sentence encoders such as MiniLM are trained with). Then a linear layer `hidden` (h to h), ReLU, Dropout of
    `dropout`, and the linear `head` to the classes. All layers are trained. DistilBERT's base model has 66,362,880
    parameters; the layers after it have h^2 + h + classes (h + 1), 592,130 for two classes.

    The folder holds `config.json` and the weights, as `save_pretrained` writes them; nothing is downloaded and no code
    in the folder is run. Its weights are never drawn anew: in a private copy only `hidden` and `head` differ. A folder
    that lacks a weight is refused. With `empty` the weights are not read, only `config.json`: for a state_dict that has
    them all.

    `forward(x, attention)`: ids and, where given, 1 for tokens and 0 for padding; without it, positions that hold the
    config's padding id are padding. `Task(..., apply=masked)` passes `batch["attention"]` on (`batch["mask"]` is
    another thing: which targets of a text count). A batch is cut at its longest text; for evaluation rows are sorted by
    length and taken 32 at a time, so that short texts do not wait for long ones. Neither changes an output.
    """

    def __init__(
        self, folder: str | Path, classes: int = 2, pool: str = "first", dropout: float = 0.1, empty: bool = False
    ) -> None:
        super().__init__()
        sizes("TextEncoder", classes=classes)
        self.pool = one_of("TextEncoder", "pool", pool, ("first", "mean"))
        self.encoder, self._folder = _read(Path(folder), empty), str(folder)
        width, self.padding = int(self.encoder.config.hidden_size), self.encoder.config.pad_token_id
        self.hidden = nn.Linear(width, width)
        self.dropout = nn.Dropout(below("TextEncoder", "dropout", dropout, 1))
        self.head = nn.Linear(width, classes)

    def check(self, x: Tensor) -> None:
        """Refuse texts (n, length), padded with 0 at their end, that the encoder cannot take: an id beyond its
        vocabulary, another padding id, or a text with more tokens than it has positions."""
        require(not x.is_floating_point(), "TextEncoder", f"needs token ids, which are whole numbers, got {x.dtype}")
        low, high = (int(found) for found in x.aminmax())
        known = int(self.encoder.get_input_embeddings().num_embeddings)
        fits = low >= 0 and high < known
        got = f"the data hold {low if low < 0 else high}"
        require(fits, "TextEncoder", f"{self._folder} has a vocabulary of {known} (ids 0..{known - 1}), but {got}")
        padded = bool((x[:, -1] == 0).any())
        mark = f"{self._folder} has the padding id {self.padding}"
        require(not padded or self.padding == 0, "TextEncoder", f"{mark}, but the data are padded with 0")
        longest = int((x != 0).any(0).nonzero().max()) + 1 if padded and high > 0 else x.shape[1]
        room = _positions(self.encoder)
        message = f"{self._folder} has positions for {room} tokens, but the data have a text of {longest}"
        require(room is None or longest <= room, "TextEncoder", message)

    def forward(self, x: Tensor, attention: Tensor | None = None) -> Tensor:
        if attention is None:
            attention = torch.ones_like(x) if self.padding is None else (x != self.padding).to(x.dtype)
        if torch.compiler.is_exporting():
            return self._logits(x, attention)  # a graph for rows of any length
        if self.training:
            return self._cut(x, attention)
        order = attention.sum(1).argsort(stable=True)
        parts = [self._cut(x[rows], attention[rows]) for rows in order.split(ROWS)]
        return torch.cat(parts)[order.argsort()]

    def _cut(self, x: Tensor, mask: Tensor) -> Tensor:
        longest = int(mask.any(0).nonzero().max()) + 1 if bool(mask.any()) else 1
        return self._logits(x[:, :longest], mask[:, :longest])

    def _logits(self, x: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.encoder(input_ids=x, attention_mask=mask).last_hidden_state
        if self.pool == "first":
            text = states[:, 0]
        else:
            seen = mask.to(states.dtype).unsqueeze(-1)
            text = (states * seen).sum(1) / seen.sum(1).clamp_min(1)
        logits: Tensor = self.head(self.dropout(torch.relu(self.hidden(text))))
        return logits


def masked(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Call a text model with the padding marks of the batch, for `Task(apply=masked)`."""
    logits: Tensor = module(batch["x"], batch["attention"])
    return logits


def _positions(encoder: nn.Module) -> int | None:
    """How many tokens have a position of their own; None where positions are not learnt one by one.

    An embedding of positions with a padding entry p (RoBERTa) counts from p + 1.
    """
    for name, part in encoder.named_modules():
        if name.rpartition(".")[2] == "position_embeddings" and isinstance(part, nn.Embedding):
            return part.num_embeddings - (0 if part.padding_idx is None else part.padding_idx + 1)
    return None


def _read(folder: Path, empty: bool = False) -> Any:
    """The encoder of a folder in float32, without the pooling layer that some have and the head does not use."""
    try:
        from transformers import AutoConfig, AutoModel
        from transformers.utils import logging
    except ImportError:
        raise fail("TextEncoder", "needs transformers: pip install 'fedchord[text]'") from None
    require((folder / "config.json").is_file(), "TextEncoder", f"needs a folder with config.json, got {folder}")
    bar, local = logging.is_progress_bar_enabled(), {"local_files_only": True, "trust_remote_code": False}
    logging.disable_progress_bar()
    try:
        info: dict[str, Any] = {"missing_keys": []}
        if empty:
            encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder, **local))
        else:
            encoder, info = AutoModel.from_pretrained(folder, output_loading_info=True, **local)
    except Exception as error:  # a damaged folder raises almost anything
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise fail("TextEncoder", f"cannot read {folder}: {reason}") from None
    finally:
        if bar:
            logging.enable_progress_bar()
    missing = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    require(not missing, "TextEncoder", f"{folder} has no weight {missing[0] if missing else ''}")
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    encoder = encoder.float()
    stay(encoder)
    return encoder
