// What the server of this page offers: a jobmanager takes requests, a history server only reads logs of clusters.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { type Query, useQuery } from "./use-query";

export interface Server {
  /** Whether it only reads logs: nothing can be changed, and nothing is known of running processes. */
  readonly isHistory: boolean;
  /** Whether the address stands for several clusters, each of which has a page of its own. */
  readonly hasManyClusters: boolean;
  /** Whether programs can be uploaded. */
  readonly runsPrograms: boolean;
  /** The cluster that the address names, if a history server has several. */
  readonly cluster: string | null;
}

const REFRESH_MS = 10_000;

/** Asks the server; the frame of the page does this once for all views. */
export function useServerQuery(): Query<Server> {
  const { body, offset, error } = useQuery("/v1/config", {}, { refresh: REFRESH_MS, hasMoment: false });
  if (body === null) return { body, offset, error };
  const { features } = body;
  const isHistory = features["web-history"];
  const server = {
    isHistory,
    // An answer about several logs is true at no offset of one.
    hasManyClusters: isHistory && offset === null,
    runsPrograms: features["web-submit"],
    cluster: isHistory ? readCluster() : null,
  };
  return { body: server, offset, error };
}

function readCluster(): string | null {
  const [, name] = /\/clusters\/([^/]+)\/$/.exec(location.pathname) ?? [];
  return name === undefined ? null : decodeURIComponent(name);
}

export const ServerContext = createContext<Server>({
  isHistory: false,
  hasManyClusters: false,
  runsPrograms: false,
  cluster: null,
});

/** Returns what the server offers. */
export function useServer(): Server {
  return useContext(ServerContext);
}
