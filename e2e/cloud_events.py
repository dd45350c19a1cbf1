"""Reads requests as CloudEvents with the project's own library, which does not know Doorstep.

Reads one JSON object per line, {"headers": {...}, "body_base64": "..."}, and answers each with one: {"attributes": {...}} and either
{"data": ...}, where the content type is JSON, or {"data_base64": "..."}; or {"fault": "..."} if it is no CloudEvent.
"""

import base64
import json
import re
import sys
from datetime import timezone

from cloudevents.core.bindings.http import HTTPMessage, from_http_event

JSON = re.compile(r"^application/([\w.+-]+\+)?json\s*(;|$)")


def shown(value):
    """Times in one form, whatever the request's was."""
    if hasattr(value, "astimezone"):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return value


def read(headers, body):
    event = from_http_event(HTTPMessage(headers, body))
    told = {"attributes": {name: shown(value) for name, value in event.get_attributes().items()}}
    data = event.get_data()
    if JSON.match(event.get_datacontenttype() or ""):
        return told | {"data": data}
    data = data.encode() if isinstance(data, str) else data
    return told | {"data_base64": base64.b64encode(data).decode()}


def main():
    for line in sys.stdin:
        case = json.loads(line)
        try:
            told = read(case["headers"], base64.b64decode(case["body_base64"]))
        except Exception as fault:
            told = {"fault": f"{type(fault).__name__}: {fault}"}
        print(json.dumps(told), flush=True)


main()
