// Uses a client that @hey-api/openapi-ts made from Doorstep's description, as somebody's program would.
//
// Arguments: the server's address, an API key, and a receiver's URL. Prints what it read of the delivery as one JSON object.

import { client } from "./sdk/client.gen";
import { deliveriesGet, deliveriesList, destinationsCreate, eventsSend, tenantsCreate } from "./sdk/sdk.gen";

const [server, key, receiver] = process.argv.slice(2);
client.setConfig({ baseUrl: server, auth: key, throwOnError: true });

const { data: tenant } = await tenantsCreate<true>({ body: { name: "Acme" } });
const { data: destination } = await destinationsCreate<true>({ body: { tenant_id: tenant.id, url: receiver } });
const { data: accepted } = await eventsSend<true>({
  body: { tenant_id: tenant.id, type: "invoice.paid", payload: { amount: 100 } },
});
let page;
do {
  page = (await deliveriesList<true>({ query: { destination_id: destination.id } })).data;
} while (page.data[0]?.status !== "delivered");
const { data: delivery } = await deliveriesGet<true>({ path: { id: page.data[0].id } });
console.log(
  JSON.stringify({ event_id: delivery.event_id, accepted: accepted.id, status: delivery.status, attempts: delivery.attempts.length }),
);
