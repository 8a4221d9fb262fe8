// Reads and writes of the REST server that serves this page. Types come from its OpenAPI document.

import type { ErrorBody, paths } from "./openapi";
import { askForToken, token } from "./token";

type Json<Responses> = Responses extends { 200: { content: { "application/json": infer Body } } }
  ? Body
  : never;
type Gets = {
  [Path in keyof paths]: paths[Path] extends { get: { responses: infer Responses } }
    ? Json<Responses>
    : never;
};

/** The paths that answer a GET. */
export type GetPath = { [Path in keyof Gets]: Gets[Path] extends never ? never : Path }[keyof Gets];
/** The body of the answer of a path. */
export type AnswerOf<Path extends GetPath> = Gets[Path];
/** The values of the parameters in a path: `{jobid}`. */
export type PathValues = Readonly<Record<string, string | number>>;
export type QueryValues = Readonly<Record<string, string | number | undefined>>;

/** An answer, and the offset of the log that it is true at. */
export interface Answer<Body> {
  readonly body: Body;
  readonly offset: number | null;
  /** The characters of the body. */
  readonly length: number;
}

/** Why a request failed: `status` is that of HTTP, or 0 if the server did not answer. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Returns whether a request that failed may succeed a little later. */
export function isTemporary(error: unknown): boolean {
  return error instanceof RequestError && [0, 429, 503].includes(error.status);
}

/** Returns a path with its parameters and query filled in, relative to the folder of the page. */
export function fillPath(path: string, values: PathValues = {}, query: QueryValues = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String(values[name] ?? "")),
  );
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return `.${filled}${text && "?"}${text}`;
}

/** Reads a path as of `query.at`, or as of now. Throws a RequestError. */
export async function get<Path extends GetPath>(
  path: Path,
  values?: PathValues,
  query?: QueryValues,
  signal?: AbortSignal,
): Promise<Answer<AnswerOf<Path>>> {
  const response = await send("GET", fillPath(path, values, query), undefined, signal);
  const offset = response.headers.get("Tailrace-Offset");
  const text = await readText(response, signal);
  return {
    body: JSON.parse(text) as AnswerOf<Path>,
    offset: offset === null ? null : Number(offset),
    length: text.length,
  };
}

/** Sends a request, with the token if there is one; a body becomes JSON. Throws a RequestError for each status that is no success. */
export async function send(
  method: string,
  url: string,
  body?: unknown,
  signal?: AbortSignal,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const sent = withToken(headers);
  if (body !== undefined) sent.set("Content-Type", "application/json");
  return checkStatus(
    await request(url, {
      method,
      headers: sent,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    }),
  );
}

/** Sends a form, as `send`. `onProgress` is called with the share of it that is sent, 0 to 1: a fetch does not tell it. */
export async function upload(
  url: string,
  form: FormData,
  headers: Readonly<Record<string, string>>,
  onProgress: (share: number) => void,
): Promise<Response> {
  const request = new XMLHttpRequest();
  const response = new Promise<Response>((resolve, reject) => {
    request.upload.onprogress = ({ lengthComputable, loaded, total }) => {
      if (lengthComputable && total > 0) onProgress(loaded / total);
    };
    request.onload = () => resolve(toResponse(request));
    request.onerror = () => reject(new RequestError(0, "The server does not answer, or refuses the file."));
  });
  request.open("POST", url);
  // The browser itself names the type of a form, with its boundary.
  withToken(headers).forEach((value, name) => {
    request.setRequestHeader(name, value);
  });
  request.send(form);
  return checkStatus(await response);
}

function toResponse(request: XMLHttpRequest): Response {
  const headers = new Headers();
  const offset = request.getResponseHeader("Tailrace-Offset");
  if (offset !== null) headers.set("Tailrace-Offset", offset);
  return new Response(request.responseText, { status: request.status, headers });
}

function withToken(headers: Readonly<Record<string, string>>): Headers {
  const sent = new Headers(headers);
  if (token.value !== null) sent.set("Authorization", `Bearer ${token.value}`);
  return sent;
}

async function checkStatus(response: Response): Promise<Response> {
  if (response.ok) return response;
  if (response.status === 401) askForToken();
  throw new RequestError(response.status, await readError(response));
}

async function request(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new RequestError(0, "The server does not answer.");
  }
}

async function readText(response: Response, signal?: AbortSignal): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError(0, "The answer of the server has no end.");
  }
}

async function readError(response: Response): Promise<string> {
  try {
    const { errors } = (await response.json()) as ErrorBody;
    return errors.join(" ");
  } catch {
    return `The server answers with status ${response.status}.`;
  }
}
