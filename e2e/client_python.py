"""Uses a client that openapi-python-client made from Doorstep's description, as somebody's program would.

Arguments: the folder of the client's package `doorstep_client`, the server's address, an API key, and a receiver's URL. Prints what it
read of the delivery as one JSON object.
"""

import json
import sys
import time

folder, server, key, receiver = sys.argv[1:]
sys.path.insert(0, folder)

from doorstep_client import AuthenticatedClient
from doorstep_client.api.deliveries import deliveries_get, deliveries_list
from doorstep_client.api.destinations import destinations_create, destinations_rotate_secret
from doorstep_client.api.events import events_send
from doorstep_client.api.tenants import tenants_create
from doorstep_client.models import NewDestination, NewEvent, NewTenant, Problem, Rotation


def done(answer):
    if answer is None or isinstance(answer, Problem):
        raise SystemExit(f"refused: {answer}")
    return answer


with AuthenticatedClient(base_url=server, token=key) as client:
    tenant = done(tenants_create.sync(client=client, body=NewTenant(name="Acme")))
    new = NewDestination.from_dict({"tenant_id": tenant.id, "url": receiver})
    destination = done(destinations_create.sync(client=client, body=new))
    rotated = done(destinations_rotate_secret.sync(destination.id, client=client, body=Rotation()))
    assert rotated.secret != destination.secret, "a new secret"
    event = NewEvent.from_dict({"tenant_id": tenant.id, "type": "invoice.paid", "payload": {"amount": 100}})
    accepted = done(events_send.sync(client=client, body=event))
    # The receiver has answered before this program was started to wait: a few looks are enough.
    for _ in range(600):
        page = done(deliveries_list.sync(client=client, destination_id=destination.id))
        if page.data and page.data[0].status == "delivered":
            break
        time.sleep(0.05)
    delivery = done(deliveries_get.sync(page.data[0].id, client=client))
    print(json.dumps({"event_id": delivery.event_id, "accepted": accepted.id, "status": delivery.status, "attempts": len(delivery.attempts)}))
