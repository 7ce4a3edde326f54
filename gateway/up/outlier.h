/* Passive ejection: who fails too many requests gets no more for a while.
 *
 * Counted over all workers with atomics: failures in a row in one word that a success only
 * writes when it is not 0, and the share of failures over a window in one more that every
 * request writes, where the configuration asks for it. How many are ejected at a time is
 * counted by compare and swap and never passes the limit. */
#ifndef POSTERN_UP_OUTLIER_H
#define POSTERN_UP_OUTLIER_H

#include "up/cluster.h"

/* A request at that server ended: `what` is one of enum outlier_on, or 0 when it went well.
 * Harmless without outlier detection. True: that was too much, the server is ejected, and
 * up/health will hear of it. Any worker's thread. */
bool outlier_note(const struct cluster *cluster, unsigned server, unsigned what, uint64_t now);
/* The bits of a status that is a failure; 0 for others. */
unsigned outlier_status(unsigned status);

/* Starts counting anew, and gives back what an ejection took of the limit. Main thread. */
void outlier_return(struct vitals *vitals);

/* For how long, ms, after `times` ejections before this one: twice as long each time. */
uint32_t outlier_sentence(const struct outlier_policy *policy, unsigned times);
/* How many of `times` still count when the last ejection, of `sentence` ms, ended `since` ms
 * ago: one less for each time that it lasted. */
unsigned outlier_decay(unsigned times, uint32_t sentence, uint64_t since);

#endif
