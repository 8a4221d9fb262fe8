import { defineConfig } from "vite";

// The built files are committed and checked in CI, so a build must be the same on every machine: no source maps, no
// inlined assets (the Content-Security-Policy forbids data: scripts and styles), names by the hash of their content.
export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: "static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
