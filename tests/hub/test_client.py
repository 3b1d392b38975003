"""What a refusal of the Hub means to a person, by the real client against a Hub on the loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_server import TOKEN, HubServer, git_sha1, sha256
from huggingface_hub import constants, hf_hub_download

from localspec.errors import HubError, HubNotFound, HubUnreachable, LocalspecError, UsageError
from localspec.hub import client

QUICK = client.Backoff(first_s=0.001)


def refused(repo: str) -> LocalspecError:
    with pytest.raises(LocalspecError) as told:
        client.ask(lambda: client.api().model_info(repo), repo, QUICK)
    return told.value


def refused_file(repo: str, file: str = "a.gguf") -> LocalspecError:
    url = f"{constants.ENDPOINT}/{repo}/resolve/main/{file}"
    with (
        pytest.raises(LocalspecError) as told,
        client.hub_errors(f"{repo}/{file}"),
        client.get(url),
    ):
        pass
    return told.value


def test_the_loopback_hub_is_one_to_the_real_client(hub: HubServer) -> None:
    repo = hub.add("me/m", {"a.gguf": b"G" * 50_000, "README.md": b"# m"}, downloads=7, tags=["x"])
    info = client.api().model_info("me/m", files_metadata=True)
    assert (info.sha, info.downloads, info.tags) == (repo.commit, 7, ["x"])
    assert [(s.rfilename, s.size, s.lfs and s.lfs.sha256) for s in info.siblings or []] == [
        ("a.gguf", 50_000, sha256(b"G" * 50_000)),
        ("README.md", 3, None),
    ]
    tree = {f.path: f for f in client.api().list_repo_tree("me/m", recursive=True)}
    assert tree["README.md"].blob_id == git_sha1(b"# m")
    assert [m.id for m in client.api().list_models(search="m", filter="x")] == ["me/m"]
    assert client.api().get_paths_info("me/m", ["a.gguf"])[0].path == "a.gguf"
    with open(hf_hub_download("me/m", "a.gguf"), "rb") as file:  # noqa: PTH123
        assert file.read() == b"G" * 50_000


def test_bytes_of_a_file_by_range(hub: HubServer) -> None:
    hub.add("me/m", {"a b/ü.gguf": bytes(range(200))})
    url = f"{constants.ENDPOINT}/me/m/resolve/main/a%20b/%C3%BC.gguf"
    with client.get(url, first=10, last=19) as response:
        assert response.status_code == 206
        assert response.headers["Content-Range"] == "bytes 10-19/200"
        assert response.read() == bytes(range(10, 20))
    assert hub.asked("/cdn/")[0].headers["Accept-Encoding"] == "identity", "offsets are the file's"


def test_the_token_goes_to_the_hub_and_not_to_the_cdn(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.add("me/m", {"a.gguf": b"G"}, private=True)
    with client.get(f"{constants.ENDPOINT}/me/m/resolve/main/a.gguf") as response:
        assert response.read() == b"G"
    assert hub.asked("/resolve/")[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Authorization" not in hub.asked("/cdn/")[0].headers


def test_a_gated_repo_says_where_to_accept_and_how_to_log_in(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("meta/llama", {"a.gguf": b"G"}, gated="manual")
    error = refused_file("meta/llama")
    assert "meta/llama is gated" in error.message
    assert f"{hub.url}/meta/llama" in error.hint and "hf auth login" in error.hint

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    error = refused_file("meta/llama")
    assert "your account has no access" in error.message
    assert f"Ask for access at {hub.url}/meta/llama" in error.hint


def test_a_private_repo_looks_like_none_until_one_logs_in(
    hub: HubServer,
) -> None:
    hub.add("me/secret", {"a.gguf": b"G"}, private=True)
    error = refused("me/secret")
    assert isinstance(error, HubNotFound)
    assert "has no me/secret, or it is private" in error.message and "HF_TOKEN" in error.hint
    Path(constants.HF_TOKEN_PATH).parent.mkdir(exist_ok=True)
    Path(constants.HF_TOKEN_PATH).write_text(TOKEN)  # what `hf auth login` leaves
    assert client.ask(lambda: client.api().model_info("me/secret").id, "me/secret") == "me/secret"


def test_a_token_that_the_hub_does_not_know(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("me/m", {"a.gguf": b"G"})
    monkeypatch.setenv("HF_TOKEN", "hf_of_yesterday")
    error = refused("me/m")
    assert "does not accept your token" in error.message
    assert "hf_of_yesterday" not in str(error)


def test_no_such_repo_revision_file(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("me/m", {"a.gguf": b"G"})
    assert "The Hub has no me/n" in refused("me/n").message
    assert "There is no me/m/b.gguf" in refused_file("me/m", "b.gguf").message
    with pytest.raises(HubNotFound, match="no such revision"), client.hub_errors("me/m"):
        client.api().model_info("me/m", revision="v9")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "log in" not in refused("me/n").hint


def test_words_that_are_no_repo(hub: HubServer) -> None:
    with pytest.raises(UsageError, match="cannot be a repo"), client.hub_errors("a b/c"):
        client.api().model_info("a b/c")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_fault_that_passes_is_waited_for(hub: HubServer, status: int) -> None:
    hub.add("me/m", {"a.gguf": b"G"})
    hub.fail("/api/models", status=status, times=3)
    assert client.ask(lambda: client.api().model_info("me/m").id, "me/m", QUICK) == "me/m"
    assert len(hub.asked("/api/models")) == 4


def test_a_fault_that_stays_is_said(hub: HubServer) -> None:
    hub.fail("/api/models", status=502, times=99)
    error = refused("me/m")
    assert isinstance(error, HubUnreachable)
    assert "fault of its own (status 502)" in error.message and "later" in error.hint
    assert len(hub.asked("/api/models")) == QUICK.attempts


def test_the_wait_that_the_hub_asks_for_is_kept_or_told(hub: HubServer) -> None:
    hub.add("me/m", {"a.gguf": b"G"})
    hub.fail("/api/models", status=429, headers={"Retry-After": "0"})
    assert (
        client.ask(lambda: client.api().model_info("me/m").id, "me/m", client.Backoff()) == "me/m"
    )
    hub.fail("/api/models", status=429, headers={"Retry-After": "3600"}, times=99)
    hub.forget()
    hub.fail("/api/models", status=429, headers={"Retry-After": "3600"}, times=99)
    error = refused("me/m")
    assert "(429)" in error.message and "in 3600 s" in error.hint
    assert len(hub.asked("/api/models")) == 1, "an hour is not waited for"


def test_offline_is_said_and_asks_nothing(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = refused("me/m")
    assert isinstance(error, HubUnreachable) and "HF_HUB_OFFLINE" in error.message
    assert not hub.requests


def test_nobody_answers(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(client.time, "sleep", lambda _: pytest.fail("it is told at once"))
    error = refused("me/m")
    assert isinstance(error, HubUnreachable)
    assert "http://127.0.0.1:9 cannot be reached" in error.message and "HF_ENDPOINT" in error.hint


def test_something_answers_that_is_no_hub(hub: HubServer) -> None:
    hub.add("me/m", {"a.gguf": b"<html>log in to the hotel's network</html>"})
    with (
        pytest.raises(HubError, match="as a Hub does"),
        client.hub_errors("me/m"),
        client.get(f"{hub.url}/me/m/resolve/main/a.gguf") as page,
    ):
        page.read()
        page.json()


def test_a_silent_server_is_not_waited_for_for_ever(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2.0)
    hub.add("me/m", {"a.gguf": b"G" * 100})
    hub.fail("/cdn/", hold_at=0)
    with (
        pytest.raises(
            HubUnreachable, match=r"http://(localhost|127\.0\.0\.1):\d+ did not answer within"
        ),
        client.hub_errors("me/m/a.gguf"),
        client.get(f"{hub.url}/me/m/resolve/main/a.gguf") as response,
    ):
        response.read()
    client.api()
    assert client.get_session().timeout.read == 2.0
