// Shows openapi.json. Everything is put in as text, never as markup.
"use strict";

const el = (name, text, ...children) => {
  const node = document.createElement(name);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};

const resolve = (doc, schema) => {
  for (let n = 0; schema && schema.$ref && n < 20; n += 1) {
    schema = schema.$ref.split("/").slice(1).reduce((at, key) => at && at[key], doc);
  }
  return schema || {};
};

const kind = (doc, schema) => {
  const name = schema.$ref && schema.$ref.split("/").pop();
  const one = resolve(doc, schema);
  if ((one.oneOf || one.anyOf) && !one.properties) return (one.oneOf || one.anyOf).map((each) => kind(doc, each)).join(" or ");
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" | ");
  const types = [].concat(one.type || "anything");
  const said = types.map((type) => (type === "array" ? `list of ${kind(doc, one.items || {})}` : type)).join(" or ");
  return name ? `${name}: ${said}` : said;
};

// What may also be null is described as what it is otherwise.
const meant = (doc, schema) => {
  const one = resolve(doc, schema);
  const [first, ...others] = (one.oneOf || []).filter((each) => resolve(doc, each).type !== "null");
  return first && !others.length ? { ...resolve(doc, first), ...first } : one;
};

// The fields of an object, those of its parts included.
const fields = (doc, schema, depth = 0) => {
  const one = resolve(doc, schema);
  const parts = (one.allOf || []).flatMap((part) => (depth < 5 ? fields(doc, part, depth + 1) : []));
  const required = new Set(one.required || []);
  const own = Object.entries(one.properties || {}).map(([name, field]) => ({ name, field, required: required.has(name) }));
  return [...parts, ...own];
};

const bounds = (field) => {
  const named = { minimum: "at least", maximum: "at most", minLength: "length from", maxLength: "length to", minItems: "items from", maxItems: "items to", pattern: "pattern" };
  return Object.entries(named).filter(([key]) => field[key] !== undefined).map(([key, word]) => `${word} ${field[key]}`).join(", ");
};

const table = (doc, rows) => {
  const body = el("tbody");
  for (const { name, field, required } of rows) {
    const one = meant(doc, field);
    const about = [field.description || one.description, bounds({ ...one, ...field })].filter(Boolean).join(" · ");
    body.append(el("tr", "", el("td", "", el("code", name + (required ? "" : "?"))), el("td", kind(doc, field)), el("td", about)));
  }
  return el("table", "", body);
};

const content = (doc, title, media) => {
  const box = el("div", "", el("h4", title));
  for (const [type, { schema, example }] of Object.entries(media || {})) {
    const rows = fields(doc, schema || {});
    box.append(el("p", `${type}: ${kind(doc, schema || {})}`));
    if (rows.length) box.append(table(doc, rows));
    if (example) box.append(el("pre", JSON.stringify(example, null, 2)));
  }
  return box;
};

// The problems that an answer may be, each with a link to what is said of it below.
const problems = (codes) => {
  const list = el("ul");
  for (const code of codes || []) {
    const link = el("a", code);
    link.href = `#problem-${code}`;
    list.append(el("li", "", link));
  }
  return list;
};

const headers = (doc, given) => {
  const rows = Object.entries(given || {}).map(([name, header]) => ({ name, field: { ...header.schema, description: header.description }, required: true }));
  return rows.length ? el("div", "", el("h4", "Headers"), table(doc, rows)) : "";
};

const resolved = (doc, part) => (part.$ref ? part.$ref.slice(2).split("/").reduce((at, name) => at[name], doc) : part);

const answered = (doc, status, given) => {
  const answer = resolved(doc, given);
  const codes = answer["x-problem-codes"];
  const summary = el("summary", codes ? `${status} ${codes.join(", ")}` : `${status} ${answer.description || ""}`);
  const body = codes ? problems(codes) : content(doc, "", answer.content);
  return el("details", "", summary, body, headers(doc, answer.headers));
};

const curl = (method, path, operation) => {
  const parts = [`curl -X ${method.toUpperCase()} "$DOORSTEP_URL${path}"`];
  if (operation.security === undefined || operation.security.length) parts.push('-H "Authorization: Bearer $DOORSTEP_API_KEY"');
  if (operation.requestBody) parts.push("-H 'Content-Type: application/json' -d '{…}'");
  return parts.join(" \\\n  ");
};

const show = (doc, path, method, operation) => {
  const id = operation.operationId || `${method}-${path}`;
  const box = el("article", "", el("h3", "", Object.assign(el("span", method.toUpperCase()), { className: "method" }), ` ${path}`));
  box.id = `op-${id}`;
  box.append(el("p", operation.summary), el("p", operation.description || ""), el("pre", curl(method, path, operation)));
  const parameters = (operation.parameters || []).map((one) => ({ name: `${one.name} (${one.in})`, field: { ...one.schema, description: one.description }, required: one.required }));
  if (parameters.length) box.append(el("h4", "Parameters"), table(doc, parameters));
  if (operation.requestBody) box.append(content(doc, "Body", operation.requestBody.content));
  box.append(...Object.entries(operation.responses || {}).map(([status, answer]) => answered(doc, status, answer)));
  return box;
};

const start = async () => {
  const doc = await (await fetch("openapi.json")).json();
  document.getElementById("about").textContent = `${doc.info.version} · ${doc.info.description}`;
  const main = document.getElementById("main");
  const index = document.getElementById("index");
  main.replaceChildren();
  const byTag = new Map((doc.tags || []).map((tag) => [tag.name, { about: tag.description, all: [] }]));
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const tag = (operation.tags || ["other"])[0];
      if (!byTag.has(tag)) byTag.set(tag, { about: "", all: [] });
      byTag.get(tag).all.push(show(doc, path, method, operation));
    }
  }
  for (const [tag, { about, all }] of byTag) {
    main.append(el("section", "", el("h2", tag), el("p", about), ...all));
    for (const box of all) {
      const link = el("a", box.querySelector("h3").textContent);
      link.href = `#${box.id}`;
      index.append(el("li", "", link));
    }
  }
  const link = el("a", "Problems");
  link.href = "#problems";
  index.append(el("li", "", link));
  document.getElementById("find").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const line of index.children) line.hidden = !line.textContent.toLowerCase().includes(wanted);
  });
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
};

start().catch((fault) => { document.getElementById("main").textContent = `The description cannot be read: ${fault}`; });
