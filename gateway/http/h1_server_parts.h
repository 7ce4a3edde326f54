/* What the two files of h1_server share; nobody else includes it. */
#ifndef POSTERN_HTTP_H1_SERVER_PARTS_H
#define POSTERN_HTTP_H1_SERVER_PARTS_H

#include "http/h1_server.h"

/* h1_server.c: the connection and the request's side */
void h1_server_close_now(struct h1_server *server, bool reset);
/* Closes so that what was written still arrives. */
void h1_server_linger(struct h1_server *server);
void h1_server_await_body(struct h1_server *server); /* it is the client's turn to send */
void h1_server_read_drain(struct h1_server *server);

/* h1_server_answer.c: the answer's side */
extern const struct leg_ops h1_server_leg_ops;
void h1_server_go_on(
    struct h1_server *server);             /* behind an answer: the next request, or the end */
void h1_server_on_turn(struct task *task); /* the answer is with the kernel */

#endif
