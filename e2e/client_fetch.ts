// Uses the types that openapi-typescript made from Doorstep's description, with openapi-fetch, as somebody's program would. The compiler
// judges that each call fits the description; the server, that the description is true.
//
// Arguments: the server's address, an API key, and a receiver's URL. Prints what it read of the delivery as one JSON object.

import createClient from "openapi-fetch";
import type { paths } from "./doorstep";

const [server, key, receiver] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: server, headers: { authorization: `Bearer ${key}` } });

function done<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const tenant = done(await api.POST("/v1/tenants", { body: { name: "Acme" } }));
const destination = done(await api.POST("/v1/destinations", { body: { tenant_id: tenant.id, url: receiver } }));
const accepted = done(
  await api.POST("/v1/events", { body: { tenant_id: tenant.id, type: "invoice.paid", payload: { amount: 100 } } }),
);
let page;
do {
  page = done(await api.GET("/v1/deliveries", { params: { query: { destination_id: destination.id } } }));
} while (page.data[0]?.status !== "delivered");
const delivery = done(await api.GET("/v1/deliveries/{id}", { params: { path: { id: page.data[0].id } } }));
console.log(
  JSON.stringify({ event_id: delivery.event_id, accepted: accepted.id, status: delivery.status, attempts: delivery.attempts.length }),
);
