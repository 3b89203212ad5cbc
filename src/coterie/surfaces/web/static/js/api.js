// Asking the API. Trouble comes back as an error whose message says what happened and what to do.

export class Trouble extends Error {
  constructor(status, what, fix) {
    super(`${what} ${fix}`.trim());
    Object.assign(this, { status, what, fix });
  }
}

export async function api(method, path, told) {
  const options = { method, headers: { Accept: "application/json" } };
  if (told instanceof Blob) options.body = told;
  else if (told !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(told);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Trouble(0, "Coterie does not answer.", "Is it still running? It will be tried again.");
  }
  const text = await answer.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = text; // a file, or a page
  }
  if (!answer.ok) throw Object.assign(new Trouble(answer.status, body?.error ?? "That did not work.", body?.fix ?? "Try again."), { difference: body?.difference });
  return body;
}

export const get = (path) => api("GET", path);
export const post = (path, told) => api("POST", path, told);
export const put = (path, told) => api("PUT", path, told);
export const remove = (path) => api("DELETE", path);
