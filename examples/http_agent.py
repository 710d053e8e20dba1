"""An agent as an endpoint: each request is a POST, the reply is one JSON object a line. It needs no memory.

everturn.toml: [agent] kind = "http", url = "http://127.0.0.1:8090/"; then `python3 http_agent.py 8090`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    """Counts the letters with a tool of its own, and streams its answer."""

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        for line in replies(request):
            self.wfile.write(json.dumps(line).encode() + b"\n")


def replies(request: dict) -> list[dict]:
    """The next response: run a tool if nothing was done yet, else answer with its result."""
    if request["type"] == "call":
        return [{"type": "result", "content": f"{len(request['call']['arguments'])} letters"}]
    results = [row["content"] for row in request["own"] if row["role"] == "tool"]
    if results:
        return [{"type": "stream", "text": "You wrote ..."}, {"type": "answer", "text": f"You wrote {results[0]}."}]
    call = {"id": "1", "name": "count", "arguments": request["text"], "effect": "pure"}
    return [{"type": "step", "content": "Let me count.", "calls": [call]}]


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Agent)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
