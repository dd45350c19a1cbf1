"""What the API's description cannot say, because JSON Schema has no words for it.

Requests that are meant to be right are put right here: in the values that break such a rule, and in nothing else. Requests that
are meant to be wrong go out as they are.
"""

import itertools
import os

import schemathesis

# Things that are there, so that not every request ends at "there is no such thing".
THERE = {
    "tenant_id": os.environ["DOORSTEP_TENANT"],
    "/v1/tenants/{id}": os.environ["DOORSTEP_TENANT"],
    "/v1/destinations/{id}": os.environ["DOORSTEP_DESTINATION"],
    "/v1/deliveries/{id}": os.environ["DOORSTEP_DELIVERY"],
    "/v1/events/{id}": os.environ["DOORSTEP_EVENT"],
}
# What Doorstep or the connection says, as far as a generator may come upon it.
RESERVED = {
    "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "host", "content-length",
    "content-encoding", "content-type", "accept-encoding", "expect", "user-agent", "cookie", "date", "via", "forwarded",
    "x-real-ip", "x-event-id", "x-event-type", "x-delivery-id", "x-delivery-attempt", "x-replay-id", "x-sequence", "x-ordering-key",
    "x-schema-version", "x-produced-at", "x-signature",
    "stripe-signature", "signature", "signature-input", "content-digest", "traceparent", "tracestate", "idempotency-key",
    "metadata", "metadata-flavor",
}  # fmt: skip
RESERVED_STARTS = (
    "proxy-", "x-forwarded-", "webhook-", "ce-", "x-hub-signature", "x-aws-ec2-", "x-amz-", "x-amzn-", "x-google", "x-goog-",
    "x-gfe", "x-azure-", "x-fd-", "x-ms-",
)  # fmt: skip
BASE_MS = 30_000
# Those that come with Doorstep, and the one that the test's server defines.
PRESETS = ["standard", "patient", "brief", "weekend"]
presets = itertools.cycle(PRESETS)
numbers = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    path, method = case.operation.path, case.operation.method.upper()
    if case.query:
        # A cursor is one of ours, and of the same list.
        case.query.pop("cursor", None)
    if case.headers and "idempotency-key" in case.headers:
        case.headers["idempotency-key"] = fresh(case.headers["idempotency-key"], 255)
    for start, there in THERE.items():
        # What is deleted is one that nobody else needs.
        if path.startswith(start) and method != "DELETE" and case.path_parameters:
            case.path_parameters["id"] = there
    if path == "/v1/events" and case.headers:
        binary(case.headers)
    if isinstance(case.body, dict):
        case.body = whole_numbers(case.body)
        if case.body.get("tenant_id"):
            case.body["tenant_id"] = THERE["tenant_id"]
        if path == "/v1/events" and "cloudevents" in case.media_type:
            cloud_event(case.body)
        elif path == "/v1/events":
            event(case.body)
        elif path.startswith("/v1/keys") and case.body.get("expires_at"):
            case.body["expires_at"] = "2999-12-31T23:59:59Z"
        elif path.startswith("/v1/event-types"):
            event_type(case.body)
        elif path.startswith("/v1/destinations"):
            destination(case.body)
        elif path.startswith("/v1/tenants") and isinstance(case.body.get("defaults"), dict):
            policy(case.body["defaults"])


@schemathesis.check
def problem_codes_are_described(context, response, case):
    """A problem's code is one of those that its operation names for that status."""
    if "application/problem+json" not in response.headers.get("content-type", [""])[0]:
        return
    described = case.operation.definition.raw["responses"].get(str(response.status_code))
    if described is not None and "$ref" in described:
        shared = case.operation.schema.raw_schema["components"]["responses"]
        described = shared[described["$ref"].removeprefix("#/components/responses/")]
    # A method that is none of the path's is no operation.
    if described is None:
        return
    code = response.json()["code"]
    assert code in described["x-problem-codes"], f"{response.status_code} is not described with {code}"


def event(body):
    # The same ID or key again means the same event again.
    if body.get("id"):
        body["id"] = fresh(body["id"], 128)
    # A registered type has a schema of its own, or is archived.
    body["type"] = "unregistered"
    headers(body)


def cloud_event(body):
    body["id"] = fresh(body["id"], 128)
    body["type"] = "unregistered"
    # The tenant is said here, or else in the query.
    body["tenantid"] = THERE["tenant_id"]


def binary(headers):
    """The attributes of a CloudEvent in binary mode come together or not at all."""
    given = [name for name in headers if name.lower().startswith("ce-")]
    for name in given:
        del headers[name]
    if "ce-specversion" in given:
        headers["ce-specversion"] = "1.0"
        headers["ce-id"] = fresh("binary", 128)
        headers["ce-source"] = "/binary"
        headers["ce-type"] = "unregistered"
        headers["ce-tenantid"] = THERE["tenant_id"]


def event_type(body):
    if body.get("schemas"):
        # A value has to be a JSON Schema, and a version that is there stays as it is.
        body["schemas"] = {f"v{next(numbers)}": {} for _ in body["schemas"]}
    versions = list(body.get("schemas") or {})
    # It names a version that is there, and one of several has to be named.
    body["default_version"] = versions[0] if versions else None


def destination(body):
    if body.get("url"):
        # It has to lead somewhere that the operator allows. Nothing listens there.
        body["url"] = "http://127.0.0.1:9/"
    # Certificates and keys have to fit each other.
    if "tls" in body:
        body["tls"] = None
    # A secret is of the kind that is asked for, and the kind does not change.
    if body.get("signing"):
        body["signing"]["algorithm"] = "hmac_sha256"
    if (body.get("secret") or "").startswith("whsk_"):
        body["secret"] = None
    policy(body)
    headers(body)


def policy(body):
    """A name is that of a preset that the operator has, and a cap is no smaller than the base."""
    given = body.get("policy")
    if isinstance(given, str) and given not in PRESETS:
        body["policy"] = next(presets)
    if isinstance(given, dict) and given.get("cap_ms"):
        given["base_ms"] = min(given.get("base_ms") or BASE_MS, given["cap_ms"])


def headers(body):
    """None that is reserved, and none twice: their names have no case, and `_` is read as `-`."""
    kept = {}
    for name, value in (body.get("headers") or {}).items():
        plain = name.lower().replace("_", "-")
        if plain not in RESERVED and not plain.startswith(RESERVED_STARTS):
            kept[name.lower()] = value
    if body.get("headers"):
        body["headers"] = kept


def fresh(text, longest):
    mark = f"-{next(numbers)}"
    return text[: longest - len(mark)].strip('" ') + mark


def whole_numbers(value):
    """`415.0` is an integer to JSON Schema, and none to most programs."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: whole_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [whole_numbers(one) for one in value]
    return value
