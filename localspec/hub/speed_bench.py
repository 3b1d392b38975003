"""SPEED-Bench by name: the qualitative prompts of nvidia/SPEED-Bench (arXiv 2604.09557).

The dataset is parquet, for which there is no reader here: its rows are asked for as JSON, from the
Hub's dataset viewer. What was read is kept in the cache, never shipped.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import platformdirs
from huggingface_hub import constants
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from localspec.errors import HubError
from localspec.hub import client
from localspec.whole_file import replacing

REPO, CONFIG, SPLIT = "nvidia/SPEED-Bench", "qualitative", "test"
PAGE = 100
"""Rows of one answer: the viewer gives no more."""


class Question(BaseModel):
    """One row; of a conversation the first turn is what is measured."""

    question_id: str
    category: str
    turns: list[str] = Field(min_length=1)


class _Entry(BaseModel):
    row: Question
    truncated_cells: list[str] = []


class _Page(BaseModel):
    rows: list[_Entry]
    num_rows_total: int


_KEPT = TypeAdapter(list[Question])


def questions() -> list[Question]:
    """All of them, in the dataset's order; from the cache if they were read before. In place of
    prompts of sources under other licences there is a placeholder.

    Raises ``HubError`` and its kinds where the Hub cannot be reached or answers otherwise.
    """
    kept = _cache()
    try:
        return _KEPT.validate_json(kept.read_bytes())
    except (OSError, ValidationError):
        pass  # not there, or damaged: read again
    found = _fetch()
    with suppress(OSError):  # then they are read again the next time
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as beside:
            beside.write_bytes(_KEPT.dump_json(found))
    return found


def _cache() -> Path:
    folder = Path(platformdirs.user_cache_dir("localspec", appauthor=False))
    return folder / f"speed-bench-{CONFIG}.json"


def _fetch() -> list[Question]:
    found: list[Question] = []
    offset, total = 0, 1
    while offset < total:
        page = client.ask(lambda at=offset: _page(at), REPO)  # type: ignore[misc]
        total = page.num_rows_total
        if not page.rows:
            break
        offset += len(page.rows)
        found += [entry.row for entry in page.rows if "turns" not in entry.truncated_cells]
    return found


def _page(offset: int) -> _Page:
    server = constants.ENDPOINT.replace("https://", "https://datasets-server.")
    words = {"dataset": REPO, "config": CONFIG, "split": SPLIT, "offset": offset, "length": PAGE}
    with client.get(f"{server}/rows?{urlencode(words)}") as response:
        answer = json.loads(response.read())
    try:
        return _Page.model_validate(answer)
    except ValidationError as error:
        raise HubError(
            f"The rows of {REPO} are not what they were: {error.errors()[0]['msg']}.",
            "Please report it; meanwhile give its prompts as a file: --workload FILE.jsonl.",
        ) from None
