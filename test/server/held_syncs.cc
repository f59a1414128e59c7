// Preloaded into a hako-server by tests. While the file $HAKO_HELD_SYNCS/hold exists, fdatasync and fsync
// do not return; they make the file `held` there. While `fail` exists they fail.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace {

std::string PathOf(const char* name) {
  const char* const folder = std::getenv("HAKO_HELD_SYNCS");
  return folder == nullptr ? std::string() : std::string(folder) + "/" + name;
}
bool Exists(const char* name) { return access(PathOf(name).c_str(), F_OK) == 0; }

int Sync(const char* function, int fd) {
  while (Exists("hold")) {
    if (!Exists("held")) close(open(PathOf("held").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    usleep(1000);
  }
  if (Exists("fail")) return errno = EIO, -1;
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, function))(fd);
}

}  // namespace

extern "C" int fdatasync(int fd) { return Sync("fdatasync", fd); }
extern "C" int fsync(int fd) { return Sync("fsync", fd); }
