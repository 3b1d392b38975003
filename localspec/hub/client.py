"""The Hub's client: who asks, where, how often, and what an error of it means to a person.

Everything goes through ``huggingface_hub`` (its endpoint, token, proxies, offline switch and error
types); what it reads from the environment it reads once, so its constants are looked up late here.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

import httpx2
from huggingface_hub import HfApi, ModelInfo, constants, get_token
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status
from huggingface_hub.utils import parse_ratelimit_headers as ratelimit

from localspec import __version__
from localspec.errors import HubError, HubNotFound, HubUnreachable, LocalspecError, UsageError

# It warns on stderr of every retry, in the middle of a progress bar; what matters is raised.
if not constants.HF_DEBUG:
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

T = TypeVar("T")


def api() -> HfApi:
    """The client for metadata, with the user's endpoint and token."""
    get_session().timeout = timeout()  # without one, a silent server is waited for for ever
    return HfApi(library_name="localspec", library_version=__version__)


def timeout() -> float:
    """Seconds without a byte after which a connection counts as dead (HF_HUB_DOWNLOAD_TIMEOUT)."""
    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def page(repo: str) -> str:
    """Where a person finds the repo."""
    return f"{constants.ENDPOINT}/{repo}"


@contextmanager
def get(url: str, *, first: int = 0, last: int | None = None) -> Iterator[httpx2.Response]:
    """The answer to a GET of the bytes ``first``..``last`` (inclusive), its body not yet read.

    Redirects are followed; the token goes to the Hub alone, never to the CDN behind it. Raises
    the library's errors for 4xx and 5xx: stand inside ``hub_errors``.
    """
    headers = build_hf_headers(library_name="localspec", library_version=__version__)
    headers["Accept-Encoding"] = "identity"  # offsets count the file's own bytes
    if first or last is not None:
        headers["Range"] = f"bytes={first}-{'' if last is None else last}"
    with get_session().stream("GET", url, headers=headers, timeout=timeout()) as response:
        hf_raise_for_status(response)
        yield response


# ---- trying again ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a request that failed for the moment is made again, and after how long.

    ``attempts`` in a row without progress; waits double from ``first_s`` to ``longest_s`` with a
    little chance in them, so that several clients do not return together. A server that names the
    time itself (Retry-After, RateLimit) is obeyed up to ``patience_s``.
    """

    attempts: int = 5
    first_s: float = 1.0
    longest_s: float = 30.0
    patience_s: float = 120.0

    def wait(self, error: Exception, failed: int) -> float | None:
        """Seconds until the next try after ``failed`` failures in a row; None: give up."""
        if failed >= self.attempts or not may_pass(error):
            return None
        asked = asked_to_wait(error)
        if asked is not None:
            return asked if asked <= self.patience_s else None
        doubled: float = self.first_s * 2 ** (failed - 1)
        return min(self.longest_s, doubled) * random.uniform(0.8, 1.2)


BACKOFF = Backoff()


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (408, 429, 500, 502, 503, 504)
    return isinstance(error, httpx2.TransportError) and not isinstance(
        error, httpx2.ProxyError | httpx2.UnsupportedProtocol
    )


def asked_to_wait(error: Exception) -> float | None:
    """Seconds that the server asks to wait."""
    if not isinstance(error, HfHubHTTPError):
        return None
    headers = error.response.headers
    limit = ratelimit(headers)
    if error.response.status_code == 429 and limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    value = headers.get("Retry-After", "").strip()
    return float(value) if value.isdigit() else None


def ask(question: Callable[[], T], what: str, backoff: Backoff | None = None) -> T:
    """The answer to a question for metadata about ``what``, asked again while that may help.

    Not where nobody can be reached at all: a person waits for this answer, and is told at once.
    """
    backoff = backoff or BACKOFF
    failed = 0
    with hub_errors(what):
        while True:
            try:
                return question()
            except (HfHubHTTPError, httpx2.TransportError) as error:
                failed += 1
                seconds = backoff.wait(error, failed)
                if seconds is None or isinstance(error, httpx2.ConnectError):
                    raise
                time.sleep(seconds)


def listed(what: str, *, limit: int, **question: str) -> list[ModelInfo]:
    """The most downloaded models that answer a ``question`` (``search``, ``filter``, ``author``),
    with their files' names: one page.

    Not by ``HfApi.list_models``, which asks again for 23 s when nobody can be reached.
    """
    words = {"sort": "downloads", "limit": str(limit), "full": "true", **question}
    url = f"{constants.ENDPOINT}/api/models?{urlencode(words)}"

    def page_of_them() -> list[ModelInfo]:
        with get(url) as response:
            found = json.loads(response.read())
        return [ModelInfo(**model) for model in found]  # type: ignore[no-untyped-call]

    return ask(page_of_them, what)


# ---- what an error means ----------------------------------------------------------------------


@contextmanager
def hub_errors(what: str) -> Iterator[None]:
    """Turns the library's errors about ``what`` (a repo, or a file of one) into ours."""
    try:
        yield
    except (
        HfHubHTTPError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        EntryNotFoundError,
        FileMetadataError,
        HFValidationError,
        OfflineModeIsEnabled,
        json.JSONDecodeError,
    ) as error:
        raise translated(error, what) from error


def translated(error: Exception, what: str) -> LocalspecError:
    """The sentence and the next step for an error of the library about ``what``."""
    repo = "/".join(what.split("/")[:2])
    if isinstance(error, OfflineModeIsEnabled):
        return HubUnreachable(
            f"HF_HUB_OFFLINE forbids asking the Hub about {what}.",
            "Unset HF_HUB_OFFLINE, or use what is here (`localspec models list`).",
        )
    if isinstance(error, HFValidationError):
        return UsageError(f"{what!r} cannot be a repo of the Hub.", "A repo is OWNER/NAME.")
    if isinstance(error, HfHubHTTPError):
        return _refused(error, what, repo)
    if isinstance(error, EntryNotFoundError):
        return HubNotFound(
            f"{what} is not here.", f"Get it with `localspec models pull hf:{repo}`."
        )
    if isinstance(error, httpx2.ProxyError):
        return HubUnreachable(
            f"The proxy did not let the request for {what} through: {error}.",
            "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY.",
        )
    if isinstance(error, httpx2.TimeoutException):
        return HubUnreachable(
            f"{_host(error)} did not answer within {timeout():.0f} s about {what}.",
            "Try again; HF_HUB_DOWNLOAD_TIMEOUT sets a longer time.",
        )
    if isinstance(error, httpx2.TransportError):
        return HubUnreachable(
            f"{_host(error)} cannot be reached for {what}: {_reason(error)}.",
            "Check the connection, HF_ENDPOINT and the proxy settings, then try again.",
        )
    return HubError(
        f"{constants.ENDPOINT} did not answer about {what} as a Hub does: {_reason(error)}.",
        "Check HF_ENDPOINT; a proxy or a login page of the network can stand in between.",
    )


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")


def _host(error: httpx2.TransportError) -> str:
    """Who was asked: the Hub, or the CDN that it sent us to."""
    try:
        return f"{error.request.url.scheme}://{error.request.url.netloc.decode()}"
    except RuntimeError:  # the error knows no request
        return constants.ENDPOINT


def _refused(error: HfHubHTTPError, what: str, repo: str) -> LocalspecError:
    status = error.response.status_code
    said = f" The Hub says: {error.server_message.rstrip('.')}." if error.server_message else ""
    login = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, GatedRepoError):
        if status == 401 or get_token() is None:
            return HubError(
                f"{repo} is gated: its files are for people who accepted its terms.",
                f"Accept them at {page(repo)}, then {login}.",
            )
        return HubError(
            f"{repo} is gated, and your account has no access to it.{said}",
            f"Ask for access at {page(repo)}; once it is granted, pull again.",
        )
    if isinstance(error, RevisionNotFoundError):
        return HubNotFound(f"{what} has no such revision.", f"See {page(repo)}/refs.")
    if isinstance(error, DisabledRepoError):
        return HubError(f"{repo} is disabled on the Hub.", f"Its page may say why: {page(repo)}.")
    if isinstance(error, EntryNotFoundError):
        return HubNotFound(f"There is no {what} on the Hub.", f"See {page(repo)}/tree/main.")
    if status == 401 and get_token() is not None and "credentials" in said.lower():
        return HubError(
            "The Hub does not accept your token.", f"Make a new one and {login}; or unset HF_TOKEN."
        )
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        private = "" if get_token() else f"; for a private one, {login}"
        return HubNotFound(
            f"The Hub has no {what}, or it is private.", f"Check the spelling{private}."
        )
    if status == 403:
        return HubError(
            f"The Hub forbids access to {what}.{said}",
            "Give your token the right to read it, at https://huggingface.co/settings/tokens.",
        )
    if status == 429:
        asked = asked_to_wait(error)
        when = f"in {asked:.0f} s" if asked is not None else "in some minutes"
        more = "" if get_token() else "; more requests are allowed when you " + login
        return HubUnreachable(
            f"The Hub limits the number of requests (429) and did not answer about {what}.",
            f"Try again {when}{more}.",
        )
    if status >= 500 or status == 408:
        return HubUnreachable(
            f"The Hub has a fault of its own (status {status}) and did not answer about {what}.",
            "Try again later; https://status.huggingface.co says how it is.",
        )
    return HubError(f"The Hub refused {what} (status {status}).{said}", f"See {page(repo)}.")
