// Pictures of each page in both themes and three widths, to be looked at: node test/shots.mjs BINARY FOLDER
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { House, launch } from "./house.mjs";
import { populate } from "./populate.mjs";

const [binary, folder, only] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const house = await House.build(binary);
const browser = await launch();
try {
  const { needs, done } = await populate(house);
  const pages = { overview: "/", sessions: "/sessions", approvals: "/approvals", conditions: "/conditions", workers: "/workers", health: "/health", session: `/sessions/${needs}`, ended: `/sessions/${done}`, files: `/sessions/${done}?panel=files`, fork: `/sessions/${done}?fork=2`, timeline: `/sessions/${needs}?timeline=list` };
  for (const colorScheme of ["light", "dark"]) {
    for (const [width, height] of [[1440, 900], [390, 844], [320, 640]]) {
      const page = await house.open(browser, "/", { colorScheme, viewport: { width, height }, dist: process.env.UI_DIST });
      for (const [name, path] of Object.entries(pages)) {
        if (only && !only.split(",").includes(name)) continue;
        await page.goto(house.url + path);
        await page.waitForSelector("h1");
        await page.waitForTimeout(900);
        await page.screenshot({ path: join(folder, `${name}-${colorScheme}-${width}.png`) });
      }
      if (page.problems.length) console.log(page.problems);
      await page.context().close();
    }
  }
} finally {
  await browser.close();
  await house.stop();
}
void readFileSync;
