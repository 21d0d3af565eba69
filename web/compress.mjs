// Moves the build to dist/, which the server embeds, with a brotli and a gzip twin of each text file.
import { cpSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const from = "build";
const to = "dist";
for (const name of readdirSync(to)) if (name !== ".gitignore") rmSync(join(to, name), { recursive: true });
cpSync(from, to, { recursive: true });

let plain = 0;
let packed = 0;
const walk = (folder) => {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) walk(path);
    else if (/\.(html|js|css|svg|json)$/.test(name)) {
      const bytes = readFileSync(path);
      const brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
      writeFileSync(`${path}.br`, brotli);
      writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      plain += bytes.length;
      packed += brotli.length;
    }
  }
};
walk(to);
console.log(`dist: ${(plain / 1000).toFixed(0)} kB, ${(packed / 1000).toFixed(0)} kB as brotli`);
