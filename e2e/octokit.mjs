// A receiver that verifies requests with the middleware of GitHub's own library, which does not know Doorstep.
//
// Takes its secret from the variable SECRET, says on which port it listens, and then tells of each event that the
// middleware let through, one JSON object per line: {"id": ..., "name": ..., "payload": ...}.

import { createServer } from "node:http";
import { Webhooks, createNodeMiddleware } from "@octokit/webhooks";

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const webhooks = new Webhooks({ secret: process.env.SECRET, log: { debug() {}, info() {}, warn() {}, error() {} } });
// What it refuses is answered, and not of interest here.
webhooks.onError(() => {});
webhooks.onAny(({ id, name, payload }) => tell({ id, name, payload }));

const server = createServer(createNodeMiddleware(webhooks, { path: "/" }));
server.listen(0, "127.0.0.1", () => tell({ port: server.address().port }));
// It ends with whoever started it.
process.stdin.on("end", () => process.exit()).resume();
