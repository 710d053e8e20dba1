"""The contract test suite for authors of adapters: the questions that every platform is asked, ours and theirs.

    from everturn.testing.platform import ContractQuestion, questions_for

    @pytest.mark.parametrize("question", questions_for(MyDriver.offers, MyDriver.failures), ids=str)
    async def test_it_keeps_the_contract(question: ContractQuestion, tmp_path: Path) -> None:
        async with MyDriver(tmp_path) as driver:
            await question(driver, tmp_path)

A platform joins by its driver, which lets people act there and sees what they see. Nothing here needs pytest.
"""

from everturn.testing.platform.driver import ABILITIES, Adapter, Driver, Pauses
from everturn.testing.platform.questions import QUESTIONS, ContractQuestion, questions_for

__all__ = ["ABILITIES", "QUESTIONS", "Adapter", "ContractQuestion", "Driver", "Pauses", "questions_for"]
