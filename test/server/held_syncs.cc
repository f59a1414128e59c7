// Preloaded into a hako-server by tests. While the file $HAKO_HELD_SYNCS/hold exists, fdatasync and fsync
// do not return for files whose path has one of its lines in it, for any file if there is no line; they make
// the file `held` there. While `fail` exists they fail.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace {

std::string PathOf(const char* name) {
  const char* const folder = std::getenv("HAKO_HELD_SYNCS");
  return folder == nullptr ? std::string() : std::string(folder) + "/" + name;
}
bool Exists(const char* name) { return access(PathOf(name).c_str(), F_OK) == 0; }

bool IsHeld(int fd) {
  std::ifstream hold(PathOf("hold"));
  if (!hold) return false;
  char path[4096] = {};
  (void)!readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path) - 1);
  bool has_lines = false;
  for (std::string line; std::getline(hold, line); has_lines = true) {
    if (std::string_view(path).find(line) != std::string_view::npos) return true;
  }
  return !has_lines;
}

int Sync(const char* function, int fd) {
  while (IsHeld(fd)) {
    if (!Exists("held")) close(open(PathOf("held").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    usleep(1000);
  }
  if (Exists("fail")) return errno = EIO, -1;
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, function))(fd);
}

}  // namespace

extern "C" int fdatasync(int fd) { return Sync("fdatasync", fd); }
extern "C" int fsync(int fd) { return Sync("fsync", fd); }
