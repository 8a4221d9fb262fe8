// Answers of past moments, which never change. Those that were not used for the longest time are dropped.

import type { Answer } from "./client";

/** An answer takes several bytes of memory for each character. */
const MOST_CHARACTERS = 20_000_000;

const answers = new Map<string, Answer<unknown>>();
let characters = 0;

export function findPastAnswer(key: string): Answer<unknown> | undefined {
  const found = answers.get(key);
  if (found !== undefined) {
    answers.delete(key);
    answers.set(key, found);
  }
  return found;
}

export function keepPastAnswer(key: string, answer: Answer<unknown>): void {
  characters += answer.length - (answers.get(key)?.length ?? 0);
  answers.delete(key);
  answers.set(key, answer);
  for (const [oldest, { length }] of answers) {
    if (characters <= MOST_CHARACTERS) break;
    answers.delete(oldest);
    characters -= length;
  }
}
