"""Judges signed requests with libraries that do not know Doorstep.

Reads one JSON object per line, {"headers": {...}, "body_base64": "...", "secret": "whsec_... or whpk_..."}, and answers
each with one: the libraries that can judge that kind of secret, each with "ok" or why not.
"""

import base64
import json
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from openai import OpenAI
from standardwebhooks import Webhook

openai = OpenAI(api_key="unused: nothing is asked of it")


def by_standardwebhooks(headers, body, secret):
    Webhook(secret).verify(body, headers, json_parse=False)


def by_openai(headers, body, secret):
    openai.webhooks.verify_signature(body, headers, secret=secret)


def by_ed25519(headers, body, public_key):
    """No published library verifies v1a, so the format is spelled out here."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_"), validate=True))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    tokens = [token.split(",", 1) for token in headers["webhook-signature"].split(" ")]
    signatures = [base64.b64decode(text, validate=True) for version, text in tokens if version == "v1a"]
    if not signatures:
        raise ValueError("there is no v1a signature")
    for signature in signatures:
        key.verify(signature, signed)


def told(judge, *case):
    try:
        judge(*case)
        return "ok"
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"


def main():
    for line in sys.stdin:
        case = json.loads(line)
        headers, secret = case["headers"], case["secret"]
        body = base64.b64decode(case["body_base64"])
        if secret.startswith("whpk_"):
            judges = {"ed25519": by_ed25519}
        else:
            judges = {"standardwebhooks": by_standardwebhooks, "openai": by_openai}
        print(json.dumps({name: told(judge, headers, body, secret) for name, judge in judges.items()}), flush=True)


main()
