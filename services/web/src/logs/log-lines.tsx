// The lines of a log file: its end, and what is added to it.

import { fillPath, send } from "../api/client";
import { FollowedLines, type TextPart } from "../parts/followed-lines";

export function LogLines({ folder, name }: { folder: string; name: string }) {
  const read = async (from: number | undefined, signal: AbortSignal): Promise<TextPart> => {
    const url = fillPath(`${folder}/{name}`, { name }, { offset: from });
    const response = await send("GET", url, undefined, signal);
    return { text: await response.text(), next: Number(response.headers.get("Tailrace-Log-Next")) };
  };
  return <FollowedLines subject={`${folder} ${name}`} read={read} empty="The file is empty." />;
}
