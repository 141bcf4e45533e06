/** The entry point: the session, the frame, and the page that the address names. */

import { session as askSession } from "./parts/api.js";
import { here } from "./parts/base.js";
import { h, replace } from "./parts/element.js";
import { listenForKeys } from "./parts/keys.js";
import { notice } from "./parts/notice.js";
import { Router } from "./parts/router.js";
import { Shell } from "./parts/shell.js";

const TRY_AGAIN_MS = 5000;

/** A page's module is loaded when it is first opened. @type {[RegExp, () => Promise<any>][]} */
const ROUTES = [
  [/^\/$/, () => import("./pages/overview.js")],
  [/^\/topics$/, () => import("./pages/topics.js")],
  [/^\/topics\/([^/]+)(?:\/(messages|configuration|groups|compaction|segments|producers|analysis))?$/, () => import("./pages/topic.js")],
  [/^\/messages$/, () => import("./pages/messages.js")],
  [/^\/groups$/, () => import("./pages/groups.js")],
  [/^\/groups\/(.+)$/, () => import("./pages/group_address.js")],
  [/^\/group$/, () => import("./pages/group.js")], // ?group_id=: a group's name may be anything, even ".."
  [/^\/compaction$/, () => import("./pages/compaction.js")],
  [/^\/storage$/, () => import("./pages/storage.js")],
  [/^\/cluster$/, () => import("./pages/cluster.js")],
  [/^\/cluster\/brokers\/(\d+)$/, () => import("./pages/broker.js")],
  [/^\/access$/, () => import("./pages/access.js")],
  [/^\/clients$/, () => import("./pages/clients.js")],
  [/^\/schemas$/, () => import("./pages/schemas.js")],
  [/^\/mirrors$/, () => import("./pages/mirrors.js")],
  [/^\/login$/, () => import("./pages/login.js")],
];

async function begin() {
  let session;
  try {
    session = await askSession();
  } catch (error) {
    replace(
      document.body,
      h(
        "main",
        null,
        h("h1", null, "The console cannot be shown now"),
        notice(error, () => location.reload()),
      ),
    );
    setTimeout(begin, TRY_AGAIN_MS);
    return;
  }
  const shell = new Shell(session);
  const router = new Router(ROUTES, shell.main, session);
  router.shown.addEventListener("shown", () => shell.mark());
  const toLogin = () =>
    router.go(`/login?to=${encodeURIComponent(here() + location.search)}`, { replace: true });
  document.addEventListener("logged-out", toLogin);
  document.addEventListener("zone-changed", () => router.show());
  listenForKeys((address) => router.go(address));
  replace(document.body, shell.element);
  const isClosed = session.login_required && !session.user;
  if (isClosed && here() !== "/login") await toLogin();
  else await router.show();
}

begin();
