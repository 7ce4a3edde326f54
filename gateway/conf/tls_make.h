/* From the tls sections of a configuration to contexts. Main thread. */
#ifndef POSTERN_CONF_TLS_MAKE_H
#define POSTERN_CONF_TLS_MAKE_H

#include "conf/conf.h"
#include "net/tls_back.h"
#include "net/tls_front.h"

#define TLS_FILE_MAX (4u << 20) /* bytes of one file */

/* Of a listener with tls, from its files as they were read, or `anew` as they are now.
 * `before`: whose ticket keys go on; NULL: nobody's. NULL with a fault. */
struct tls_front *tls_make_front(const struct conf_listener *listener, bool anew,
                                 const struct tls_front *before, struct conf_faults *faults);
/* Of an upstream with tls, likewise. NULL with a fault. */
struct tls_back *tls_make_back(const struct conf_upstream *upstream, bool anew,
                               struct conf_faults *faults);
/* Which certificates of `front` are not valid at `now`: a fault for each. One that was as bad
 * `before` (NULL: none) goes into `known`. */
void tls_check_dates(const struct conf_listener *listener, const struct tls_front *front,
                     const struct tls_front *before, time_t now, struct conf_faults *faults,
                     struct conf_faults *known);
/* Differs when the file does, as far as the file system tells. 0: it is not there. */
uint64_t tls_stamp_of(const char *path);
/* Of all files together: as they are, or as they `were` when they were read. */
uint64_t tls_stamp(const struct conf_front *tls, bool were);
uint64_t tls_back_stamp(const struct conf_back *tls, bool were);
/* Overwrites the keys in memory. */
void tls_forget(struct conf *conf);

#endif
