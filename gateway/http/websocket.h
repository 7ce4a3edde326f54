/* The opening handshake of websockets: what HTTP/1 proves with a key and its echo (RFC 6455 4),
 * and HTTP/2 does not need (RFC 8441). Pure functions. */
#ifndef POSTERN_HTTP_WEBSOCKET_H
#define POSTERN_HTTP_WEBSOCKET_H

#include "http/head.h"

#define WEBSOCKET_KEY    24 /* 16 random bytes in base64 */
#define WEBSOCKET_ACCEPT 28 /* 20 bytes */

/* A new Sec-WebSocket-Key. False: the system has no random bytes. */
bool websocket_key(char out[WEBSOCKET_KEY]);
/* The Sec-WebSocket-Accept that answers `key`. False: no memory. */
bool websocket_accept(char out[WEBSOCKET_ACCEPT], struct str key);
/* Whether that request asks for one: GET, with websocket among its Upgrade's protocols. */
bool websocket_is_asked_for(const struct head *head);

#endif
