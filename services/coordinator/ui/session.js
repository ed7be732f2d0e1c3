// Who is signed in and what they may do. The server decides; this only saves people from buttons that would be refused.

import { ApiError, get } from "./api.js";

const RANK = { viewer: 1, operator: 2, admin: 3 };
let caller = { role: "", name: "" };

/** Reads who we are. ApiError: not signed in, or nobody answers. */
export async function identify() {
  try {
    const found = await get("/v1/whoami");
    caller = { role: String(found.role ?? ""), name: String(found.name ?? "") };
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    caller = { role: "", name: "" };
  }
  return caller;
}

export function who() {
  return caller;
}

/** Whether a control is offered; a role that the server does not tell is left to the server. */
export function may(role) {
  return !(caller.role in RANK) || RANK[caller.role] >= RANK[role];
}
