#include <iostream>

#include "hako/base/status.h"
#include "hako/version.h"

int main() {
  hako::StatusOr<int> answer = hako::DataLossError("a minimal consumer", 7);
  std::cout << "hako " << hako::kVersionString << ": " << answer.status() << "\n";
  return answer.ok() ? 1 : 0;
}
