// Requests to the API. A failure is thrown as an ApiError that says what happened and what to do.

import { t } from "./messages.js";

export class ApiError extends Error {
  constructor(status, what, fix) {
    super(`${what} ${fix}`.trim());
    Object.assign(this, { status, what, fix });
  }
}

export async function api(method, path, data, confirmation) {
  const options = { method, headers: { Accept: "application/json" } };
  if (confirmation) options.headers["Coterie-Confirmation"] = confirmation;
  if (data instanceof Blob) options.body = data;
  else if (data !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(data);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ApiError(0, t("Coterie is not reachable."), t("Check that it is running; the request is tried again."));
  }
  const text = await answer.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = text; // a file, or a page
  }
  if (answer.status === 403 && body?.confirm && !confirmation) {
    const { confirm } = await import("./confirm.js");
    const given = await confirm(body.error);
    if (given) return api(method, path, data, given);
  }
  if (!answer.ok) throw Object.assign(new ApiError(answer.status, body?.error ?? t("That did not work."), body?.fix ?? t("Try again.")), { difference: body?.difference });
  return body;
}

export const get = (path) => api("GET", path);
export const post = (path, data) => api("POST", path, data);
export const put = (path, data) => api("PUT", path, data);
export const remove = (path) => api("DELETE", path);
