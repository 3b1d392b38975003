"""Does a Xet download that was killed go on where it stopped? Why ``hub.download`` uses plain HTTP.

A file goes into a store of hf_xet's on this disk (its ``local://`` scheme), one process fetches it
and is killed with SIGKILL on the way, a second fetches it to the same path: how many bytes does the
second one transfer? Then the rest of the file alone is read as a stream, which hf_xet can begin
anywhere: that would resume, into a part of our own.

``python benchmarks/xet_resume.py [--mb 300]`` needs three times the size on disk, no network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import hf_xet

# Each of these is a process of its own: the store is open in one at a time.


def put(store: str, path: str) -> None:
    with hf_xet.XetSession().new_upload_commit(endpoint=store) as commit:
        upload = commit.start_upload_file(path)
    print(upload.result().xet_info.hash)


def fetch(store: str, digest: str, size: str, path: str) -> None:
    """Prints bytes completed and transferred, every few milliseconds."""

    def tell(group: hf_xet.GroupProgressReport, _: object) -> None:
        print(group.total_bytes_completed, group.total_transfer_bytes_completed, flush=True)

    with hf_xet.XetSession().new_file_download_group(
        endpoint=store, progress_callback=tell, progress_interval_ms=5
    ) as group:
        group.start_download_file(hf_xet.XetFileInfo(digest, int(size)), path)


def rest(store: str, digest: str, size: str, start: str, path: str) -> None:
    group = hf_xet.XetSession().new_download_stream_group(endpoint=store)
    file = hf_xet.XetFileInfo(digest, int(size))
    Path(path).write_bytes(b"".join(group.download_stream(file, start=int(start))))


STEPS = {step.__name__: step for step in (put, fetch, rest)}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in STEPS:
        STEPS[sys.argv[1]](*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=300)
    content = os.urandom(parser.parse_args().mb * 1_000_000)
    size, me = str(len(content)), [sys.executable, __file__]
    with tempfile.TemporaryDirectory() as folder:
        source, copy, end = (Path(folder) / name for name in ("source", "copy", "end"))
        store = f"local://{folder}/store"
        source.write_bytes(content)
        digest = subprocess.check_output([*me, "put", store, str(source)], text=True).strip()
        result: dict[str, object] = {"hf_xet": metadata.version("hf_xet"), "bytes": len(content)}
        command = [*me, "fetch", store, digest, size, str(copy)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
            for line in first.stdout or ():
                done, transferred = map(int, line.split())
                if len(content) // 10 < done < len(content):
                    first.kill()
                    result |= {"killed_at": done, "transferred_by_then": transferred}
                    break
        second = subprocess.check_output(command, text=True)
        result["transferred_by_the_second"] = int(second.split()[-1])
        result["whole"] = copy.read_bytes() == content
        start = len(content) * 9 // 10
        subprocess.check_call([*me, "rest", store, digest, size, str(start), str(end)])
        result["a_stream_gave_the_last_tenth"] = end.read_bytes() == content[start:]
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
