/* gateway.conf: whatever the file holds, it is a configuration, which is then written out and
 * loads again, or it has faults. */
#include <stdio.h>
#include <stdlib.h>

#include "conf/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_dump(const struct conf *conf)
{
    struct conf_faults faults = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return;
    conf_dump(conf, out);
    fclose(out);
    struct conf *again = conf_load_text("dump", (struct str){text, n}, &faults);
    if (!again)
        abort(); /* a configuration must survive being written out */
    conf_free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf_faults faults = {0};
    struct conf *conf = conf_load_text("/nonexistent/fuzz.conf",
                                       (struct str){(const char *)data, size}, &faults);
    if ((conf == NULL) != (faults.count > 0))
        abort();
    if (conf) {
        check_dump(conf);
        router_free(router_new(conf, &faults));
    }
    conf_free(conf);
    conf_faults_done(&faults);
    return 0;
}
