/* `_dl_find_object` for static programs with musl: Debian's libgcc is built for glibc 2.35 and later, and asks it for the
 * object that an address is in. Answers from `dl_iterate_phdr`, which musl has. In: an address. Out: 0, and where the object
 * lies and where its unwind tables begin; -1 where no object is at that address or it has no tables. 32-bit ARM keeps its
 * tables elsewhere and never asks. */
#include <elf.h>
#include <link.h>
#include <stddef.h>

/* As in glibc's <dlfcn.h>, for machines that do not define DLFO_STRUCT_HAS_EH_DBASE, such as ARM. */
struct dl_find_object {
    unsigned long long flags;
    void *map_start, *map_end, *link_map, *eh_frame;
    unsigned long long reserved[7];
};

struct search {
    ElfW(Addr) address;
    struct dl_find_object *found;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    const ElfW(Phdr) *tables = NULL;
    int inside = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_GNU_EH_FRAME)
            tables = part;
        if (part->p_type != PT_LOAD || search->address < start || search->address - start >= part->p_memsz)
            continue;
        inside = 1;
        search->found->map_start = (void *)start;
        search->found->map_end = (void *)(start + part->p_memsz);
    }
    if (!inside || !tables)
        return 0;
    search->found->eh_frame = (void *)(info->dlpi_addr + tables->p_vaddr);
    return 1;
}

int _dl_find_object(void *address, struct dl_find_object *found)
{
    struct search search = {(ElfW(Addr))address, found};
    found->flags = 0;
    found->link_map = NULL;
    return dl_iterate_phdr(visit, &search) ? 0 : -1;
}
